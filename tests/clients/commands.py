"""Commands of pulsar-admin, in the order in which they run. `{…}` is replaced for each target."""

from __future__ import annotations

NS = "public/cmd"
T = f"persistent://{NS}/t"
P = f"persistent://{NS}/p"
NONE = f"persistent://{NS}/none"

WHOLE_BROKER = ("broker-stats topics", "broker-stats monitoring-metrics")
"""What they print depends on what ran before; only their status is compared."""

BROKERS = """
brokers list {cluster}
brokers leader-broker
brokers healthcheck
brokers version
brokers namespaces {cluster} --url {broker}
brokers list-dynamic-config
brokers get-all-dynamic-config
brokers update-dynamic-config --config loadBalancerSheddingEnabled --value false
brokers get-all-dynamic-config
brokers delete-dynamic-config --config loadBalancerSheddingEnabled
brokers update-dynamic-config --config nosuch --value 1
brokers update-dynamic-config --config loadBalancerSheddingEnabled --value notabool
brokers delete-dynamic-config --config loadBalancerSheddingEnabled
brokers get-runtime-config
brokers get-internal-config
brokers backlog-quota-check
clusters list
clusters get {cluster}
clusters get nosuch
clusters create other --url http://127.0.0.1:1
clusters update other --url http://127.0.0.1:2
clusters delete other
clusters get-peer-clusters {cluster}
clusters list-failure-domains {cluster}
clusters create-failure-domain {cluster} --domain-name d --broker-list {broker}
clusters get-failure-domain {cluster} --domain-name d
clusters update-failure-domain {cluster} --domain-name d --broker-list b
clusters list-failure-domains {cluster}
clusters delete-failure-domain {cluster} --domain-name d
clusters get-failure-domain {cluster} --domain-name d
clusters delete-failure-domain {cluster} --domain-name d
tenants list
tenants create --allowed-clusters {cluster} --admin-roles r tt
tenants create --allowed-clusters {cluster} tt
tenants create --allowed-clusters nosuch t2
tenants get tt
tenants update --allowed-clusters {cluster} --admin-roles r,s tt
tenants get tt
tenants get nosuch
tenants update --allowed-clusters nosuch tt
tenants delete tt
tenants delete nosuch
broker-stats load-report
broker-stats topics
broker-stats monitoring-metrics
broker-stats mbeans
broker-stats allocator-stats default
resource-quotas get
resource-quotas set -mi 1 -mo 1 -bi 1 -bo 1 -mem 1
ns-isolation-policy set {cluster} i --auto-failover-policy-type min_available \
--auto-failover-policy-params min_limit=1,usage_threshold=80 --namespaces public/iso.* \
--primary .*
ns-isolation-policy list {cluster}
ns-isolation-policy get {cluster} i
ns-isolation-policy get {cluster} nosuch
ns-isolation-policy brokers {cluster}
ns-isolation-policy broker {cluster} --broker {broker}
ns-isolation-policy delete {cluster} i
ns-isolation-policy delete {cluster} i
ns-isolation-policy list {cluster}
resourcegroups create rg -mp 100 -bp 1000 -md 200 -bd 2000
resourcegroups list
resourcegroups get rg
resourcegroups update rg -mp 50
resourcegroups get rg
resourcegroups get nosuch
"""

NAMESPACES = f"""
namespaces create -b 4 {NS}
namespaces create -b 4 {NS}
namespaces create nosuch/ns
namespaces list public
namespaces bundles {NS}
namespaces policies {NS}
namespaces permissions {NS}
namespaces policies public/nosuch
namespaces get-clusters {NS}
namespaces set-clusters -c {{cluster}} {NS}
namespaces set-clusters -c nosuch {NS}
resource-quotas get -n {NS} -b 0x00000000_0x40000000
resource-quotas set -n {NS} -b 0x00000000_0x40000000 -mi 2 -mo 2 -bi 2 -bo 2 -mem 2
resource-quotas get -n {NS} -b 0x00000000_0x40000000
resource-quotas reset-namespace-bundle-quota -n {NS} -b 0x00000000_0x40000000
resource-quotas get -n {NS} -b 0x00000000_0x40000000
namespaces create public/group
namespaces set-anti-affinity-group -g g public/group
namespaces get-anti-affinity-group public/group
namespaces get-anti-affinity-namespaces -g g -c {{cluster}} -p public
namespaces delete-anti-affinity-group public/group
namespaces get-anti-affinity-group public/group
namespaces delete public/group
namespaces set-resource-group -rgn rg {NS}
namespaces get-resource-group {NS}
namespaces set-resource-group -rgn nosuch {NS}
resourcegroups delete rg
namespaces remove-resource-group {NS}
namespaces get-resource-group {NS}
resourcegroups delete rg
resourcegroups delete rg
namespaces get-publish-rate {NS}
namespaces set-publish-rate -m 5 -b 6 {NS}
namespaces get-publish-rate {NS}
namespaces remove-publish-rate {NS}
namespaces get-publish-rate {NS}
namespaces get-dispatch-rate {NS}
namespaces set-dispatch-rate -md 5 -bd 6 -dt 2 {NS}
namespaces get-dispatch-rate {NS}
namespaces remove-dispatch-rate {NS}
namespaces get-dispatch-rate {NS}
namespaces set-subscription-dispatch-rate -md 5 -bd 6 -dt 2 {NS}
namespaces get-subscription-dispatch-rate {NS}
namespaces remove-subscription-dispatch-rate {NS}
namespaces get-subscription-dispatch-rate {NS}
namespaces set-subscribe-rate -sr 5 -st 60 {NS}
namespaces get-subscribe-rate {NS}
namespaces remove-subscribe-rate {NS}
namespaces get-subscribe-rate {NS}
namespaces set-publish-rate -m 5 public/nosuch
namespaces topics {NS}
namespaces split-bundle -b 0x00000000_0x41000000 {NS}
namespaces split-bundle -b 0x00000000_0x40000000 {NS}
namespaces bundles {NS}
namespaces split-bundle -b 0x00000000_0x20000000 --split-algorithm-name \
topic_count_equally_divide {NS}
namespaces split-bundle -b 0x00000000_0x20000000 --split-algorithm-name nosuch {NS}
namespaces split-bundle -b 0x00000000_0x20000000 --split-algorithm-name \
specified_positions_divide -sb 268435456 {NS}
namespaces bundles {NS}
namespaces unload -b 0x40000000_0x80000000 {NS}
namespaces unload -b 0x40000000_0x80000001 {NS}
namespaces unload {NS}
namespaces unload public/nosuch
namespaces get-topic-positions -b 0x40000000_0x80000000 {NS}
"""

TOPICS = f"""
topics create {T}
topics create {T}
topics list {NS}
topics list {NS} --bundle 0x40000000_0x80000000
topics list {NS} --bundle 0x80000000_0xc0000000
topics list public/nosuch
topics lookup {T}
topics bundle-range {T}
topics create-subscription -s a {T}
topics create-subscription -s a {T}
topics create-subscription -s b -m earliest {T}
topics create-subscription -s a {NONE}
topics subscriptions {T}
topics subscriptions {NONE}
topics permissions {T}
topics stats {T}
topics stats {NONE}
topics last-message-id {T}
produce 10 {T}
topics stats {T}
topics last-message-id {T}
topics skip -n 3 -s a {T}
topics skip -n 3 -s nosuch {T}
backlog {T}
topics clear-backlog -s a {T}
backlog {T}
topics reset-cursor -s a -t 1h {T}
topics reset-cursor -s a -m 0:0 {T}
topics reset-cursor -s a -m earliest {T}
backlog {T}
topics reset-cursor -s nosuch -t 1h {T}
topics unsubscribe -s b {T}
topics unsubscribe -s nosuch {T}
topics subscriptions {T}
topics unload {T}
topics unload {NONE}
topics stats {T}
topics create-partitioned-topic -p 3 {P}
topics create-partitioned-topic -p 3 {P}
topics list-partitioned-topics {NS}
topics get-partitioned-topic-metadata {P}
topics get-partitioned-topic-metadata {NONE}
topics partitioned-lookup {P}
topics create-subscription -s a {P}
topics subscriptions {P}
produce 9 {P}
topics partitioned-stats {P}
topics partitioned-stats {P} --per-partition
topics stats {P}
topics stats {P}-partition-0
topics stats {P}-partition-7
topics last-message-id {P}
topics skip -n 1 -s a {P}
topics clear-backlog -s a {P}
topics reset-cursor -s a -t 1h {P}
topics update-partitioned-topic -p 5 {P}
topics update-partitioned-topic -p 2 {P}
topics update-partitioned-topic -p 5 {NONE}
topics get-partitioned-topic-metadata {P}
topics create-missed-partitions {P}
topics subscriptions {P}-partition-4
topics unload {P}
topics unsubscribe -s a {P}
topics create non-persistent://{NS}/n
topics stats non-persistent://{NS}/n
topics stats non-persistent://{NS}/none
topics create-partitioned-topic -p 2 non-persistent://{NS}/np
topics list {NS}
topicPolicies set-publish-rate -m 5 {NONE}
topicPolicies set-publish-rate -m 5 -b 6 {T}
topicPolicies get-publish-rate {T}
topicPolicies remove-publish-rate {T}
topicPolicies get-publish-rate {T}
topicPolicies set-dispatch-rate -md 5 -bd 6 -dt 2 {T}
topicPolicies get-dispatch-rate {T}
topicPolicies get-dispatch-rate -ap {T}
topicPolicies remove-dispatch-rate {T}
topicPolicies set-subscription-dispatch-rate -md 5 -bd 6 -dt 2 {T}
topicPolicies get-subscription-dispatch-rate {T}
topicPolicies set-subscription-dispatch-rate -md 7 -s a {T}
topicPolicies get-subscription-dispatch-rate -s a {T}
topicPolicies remove-subscription-dispatch-rate {T}
topicPolicies set-subscribe-rate -sr 5 -st 60 {T}
topicPolicies get-subscribe-rate {T}
topicPolicies remove-subscribe-rate {T}
topicPolicies get-subscribe-rate {T}
schemas get {T}
schemas upload -f {{schema}} {T}
schemas get {T}
schemas get -v 0 {T}
schemas metadata {T}
schemas compatibility -f {{schema}} {T}
schemas upload -f {{other_schema}} {T}
schemas delete {T}
schemas get {T}
topics delete {NONE}
topics create {T}-subscribed
topics create-subscription -s a {T}-subscribed
topics delete {T}-subscribed
topics delete -f {T}-subscribed
topics delete {P}
topics delete-partitioned-topic {P}
topics unsubscribe -s a {T}
topics delete {T}
topics delete {T}
topics delete-partitioned-topic non-persistent://{NS}/np
topics delete non-persistent://{NS}/n
topics list {NS}
namespaces delete {NS}
namespaces list public
"""

AGAIN = f"""
namespaces create {NS}
topics create {T}-again
topics create-subscription -s a {T}-again
topics terminate {T}-again
topics delete -f {T}-again
topics create {T}
topics create-subscription -s a {T}
"""

KEEPING = f"""
namespaces get-retention {NS}
namespaces set-retention -t 1h -s 1G {NS}
namespaces get-retention {NS}
namespaces set-backlog-quota -l 2G -p producer_exception {NS}
namespaces set-backlog-quota -l 10M -p producer_exception {NS}
namespaces get-backlog-quotas {NS}
namespaces remove-retention {NS}
namespaces set-backlog-quota -lt 60 -t message_age -p producer_exception {NS}
namespaces get-backlog-quotas {NS}
namespaces remove-backlog-quota -t message_age {NS}
namespaces get-backlog-quotas {NS}
namespaces remove-backlog-quota {NS}
namespaces get-retention {NS}
namespaces set-retention -t 0 -s 1G {NS}
namespaces get-message-ttl {NS}
namespaces set-message-ttl -ttl 500 {NS}
namespaces get-message-ttl {NS}
namespaces remove-message-ttl {NS}
namespaces get-message-ttl {NS}
namespaces get-deduplication {NS}
namespaces set-deduplication -e {NS}
namespaces get-deduplication {NS}
namespaces remove-deduplication {NS}
topics expire-messages -t 500 -s a {T}
topics expire-messages -t 500 -s none {T}
topics expire-messages-all-subscriptions -t 500 {T}
"""

NOT_SERVED = f"""
namespaces set-persistence -a 1 -e 1 -w 1 -r 0 {NS}
namespaces get-persistence {NS}
namespaces set-max-producers-per-topic -p 5 {NS}
namespaces get-max-producers-per-topic {NS}
namespaces set-max-consumers-per-topic -c 5 {NS}
namespaces set-max-topics-per-namespace -t 50 {NS}
namespaces get-max-topics-per-namespace {NS}
namespaces set-auto-topic-creation -d {NS}
namespaces get-auto-topic-creation {NS}
namespaces set-compaction-threshold -t 10M {NS}
namespaces set-delayed-delivery -e {NS}
namespaces get-delayed-delivery {NS}
namespaces set-inactive-topic-policies -e -t 1h -m delete_when_no_subscriptions {NS}
namespaces set-schema-compatibility-strategy -c BACKWARD {NS}
namespaces get-schema-compatibility-strategy {NS}
namespaces grant-permission --role r --actions produce {NS}
namespaces set-property -k a -v b {NS}
namespaces get-properties {NS}
namespaces set-subscription-types-enabled -t Shared {NS}
namespaces set-replicator-dispatch-rate -md 5 {NS}
namespaces get-replicator-dispatch-rate {NS}
namespaces set-bookie-affinity-group -pg g {NS}
namespaces clear-backlog -force {NS}
namespaces set-encryption-required -e {NS}
namespaces set-offload-threshold -s 10M {NS}
topics stats-internal {T}
topics info-internal {T}
topics peek-messages -s a -n 1 {T}
topics truncate {T}
topics compact {T}
topics compaction-status {T}
topics get-properties {T}
topics get-backlog-size -m 0:0 {T}
topics offload-status {T}
topics get-replication-clusters {T}
topicPolicies set-retention -t 1h -s 1G {T}
topicPolicies get-retention {T}
topicPolicies set-max-producers -p 5 {T}
topicPolicies set-message-ttl -t 5 {T}
functions list --tenant public --namespace default
sinks list
packages list --type function public/default
transactions coordinators-list
"""

ALL = BROKERS + NAMESPACES + TOPICS + AGAIN + KEEPING + NOT_SERVED
