# Stands in for zookeeper:3.9 where no image can be pulled: its server is among pyspark's jars.
# hadolint ignore=DL3006
FROM loadmanager-base
COPY java /opt/java
COPY jars /opt/jars
COPY zookeeper.sh /zookeeper.sh
RUN chmod -R a+rX /opt/java /opt/jars \
    && chmod a+x /opt/java/bin/* /opt/java/lib/jspawnhelper /zookeeper.sh \
    && groupadd --gid 1000 zookeeper \
    && useradd --uid 1000 --gid 1000 --no-create-home zookeeper \
    && mkdir -p /data /datalog /conf \
    && chown zookeeper:zookeeper /data /datalog /conf
VOLUME ["/data", "/datalog"]
USER 1000:1000
EXPOSE 2181 2888 3888
ENTRYPOINT ["/zookeeper.sh"]
