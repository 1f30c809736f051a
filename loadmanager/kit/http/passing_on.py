"""How a client has one broker ask others: names of headers, and a status."""

FOLLOW = "Loadmanager-Follow"
"""`true`: repeat the request where it would be redirected to."""
BROKER = "Loadmanager-Broker"
"""The id of the broker that shall answer, and in an answer that of the one that did."""
WITHIN = "Loadmanager-Within"
"""How many seconds that broker has."""
ASKER = "Loadmanager-Asker"
"""From broker to broker: the address of whoever asks, for whom it is passed on."""
PASSED_BY = "Loadmanager-Passed-By"
"""From broker to broker: the id of the one that passes it on."""
PROOF = "Loadmanager-Passed-By-Authorization"
"""From broker to broker: what proves that it is one."""
UNDECIDED = "Loadmanager-Undecided"
"""`true` in an answer 503: brokers sent the request to each other, because they do not agree yet on
the owner or the leader. None has done anything: it may be asked again in a moment.
"""
MISDIRECTED = 421
"""What is not passed on, because the request came over TLS and would go on without. Whoever asks
may ask directly.
"""
