"""A live load manager with Apache Pulsar's concepts, names and wire formats."""

__version__ = "0.3.0"
