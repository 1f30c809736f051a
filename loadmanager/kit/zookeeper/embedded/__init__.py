"""A metadata store for one machine: a server of ZooKeeper's wire protocol, in this process.

It serves kazoo and every other client of ZooKeeper 3.5 to 3.9 as a real server alone would, and
keeps its tree in a SQLite file. It has no replicas: an ensemble of ZooKeeper is for production.

From the inside out, each of one idea: `jute` (bytes), `codes`, `records` (requests and answers),
`paths`, `access` (ACLs); `nodes`, `tree` and `transactions`, `watches`, `sessions`: the state,
synchronous and without input or output; `file` (SQLite), `outgoing` (what waits for a client),
`commits` (an answer leaves once what it depends on is on the disk), `service` (what each request
does), `words` (four-letter words), `connection`, `server`.
"""
