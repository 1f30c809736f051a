{{- define "loadmanager.labels" -}}
app.kubernetes.io/name: loadmanager
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "loadmanager.brokers" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: broker
{{- end }}

{{- define "loadmanager.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "loadmanager.zookeeper" -}}
{{ .Values.zookeeper.address | default (printf "%s-zookeeper:2181/loadmanager" .Release.Name) }}
{{- end }}

{{- define "loadmanager.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "loadmanager.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "loadmanager.conf" -}}
{{- $secure := .Values.secure.secret }}
clusterName={{ .Values.clusterName }}
metadataStoreUrl=zk:{{ include "loadmanager.zookeeper" . }}
loadManagerHistoryDirectory=data/history
loadManagerStorageDirectory={{ if .Values.storage.enabled }}data/topics{{ end }}
{{- with .Values.nicSpeedGbps }}
loadBalancerOverrideBrokerNicSpeedGbps={{ . }}
{{- end }}
{{- if $secure }}
authenticationEnabled=true
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken
authorizationEnabled=true
superUserRoles=broker,admin
authenticateMetricsEndpoint=true
tokenPublicKey=file:///run/secrets/loadmanager/public.key
tokenPublicAlg=ES256
brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
brokerClientAuthenticationParameters=file:///run/secrets/loadmanager/broker.token
brokerServicePort=
webServicePort=
brokerServicePortTls=6650
webServicePortTls=8080
tlsCertificateFilePath=/run/secrets/loadmanager/broker.pem
tlsKeyFilePath=/run/secrets/loadmanager/broker.key
brokerClientTlsEnabled=true
brokerClientTrustCertsFilePath=/run/secrets/loadmanager/ca.pem
{{- else }}
loadManagerAllowUnauthenticatedAccess=true
{{- end }}
{{- if .Values.zookeeper.tls }}
loadManagerZooKeeperTlsEnabled=true
loadManagerZooKeeperTlsTrustCertsFilePath=/run/secrets/loadmanager/ca.pem
loadManagerZooKeeperTlsCertificateFilePath=/run/secrets/loadmanager/broker.pem
loadManagerZooKeeperTlsKeyFilePath=/run/secrets/loadmanager/broker.key
{{- end }}
{{- range $key, $value := .Values.config }}
{{ $key }}={{ $value }}
{{- end }}
{{- end }}
