#!/bin/bash
# Stands in for the entry point of the image zookeeper:3.9, for the variables that we set.
set -eu
{
    echo "dataDir=/data"
    echo "dataLogDir=/datalog"
    echo "tickTime=2000"
    echo "initLimit=5"
    echo "syncLimit=2"
    echo "admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-false}"
    echo "4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}"
    echo "autopurge.purgeInterval=${ZOO_AUTOPURGE_PURGEINTERVAL:-0}"
    echo "standaloneEnabled=${ZOO_STANDALONE_ENABLED:-true}"
    for server in ${ZOO_SERVERS:-}; do
        echo "$server"
    done
    [ -n "${ZOO_SERVERS:-}" ] || echo "clientPort=2181"
    for line in ${ZOO_CFG_EXTRA:-}; do
        echo "$line"
    done
} > /conf/zoo.cfg
[ -e /data/myid ] || echo "${ZOO_MY_ID:-1}" > /data/myid
exec /opt/java/bin/java -Xmx256m ${SERVER_JVMFLAGS:-} -cp '/opt/jars/*:/conf' \
    org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
