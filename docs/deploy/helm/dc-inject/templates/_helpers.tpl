{{- define "dc-inject.labels" -}}
app.kubernetes.io/name: dc-inject
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dc-inject.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* The pod of both modes: the same image, files and rights; only the command differs. */}}
{{- define "dc-inject.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
# A stop waits up to half a minute for answers that are under way.
terminationGracePeriodSeconds: 90
containers:
  - name: dc-inject
    image: {{ include "dc-inject.image" . | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
      - run
      {{- if eq .Values.mode "once" }}
      - --once
      {{- else }}
      - --metrics-address
      - {{ printf "0.0.0.0:%v" .Values.metrics.port | quote }}
      {{- end }}
      {{- range .Values.arguments }}
      - {{ . | quote }}
      {{- end }}
      - /etc/dc_inject/menus
    env:
      - {name: XDG_STATE_HOME, value: /ledger}
      - {name: TMPDIR, value: /tmp}
      {{- if .Values.shards }}
      - name: JOB_COMPLETION_INDEX
        valueFrom:
          fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
      - {name: DC_INJECT_SHARD, value: $(JOB_COMPLETION_INDEX)/{{ .Values.shards }}}
      {{- end }}
      {{- if .Values.secrets.rucio }}
      - {name: RUCIO_CONFIG, value: /run/secrets/rucio/rucio.cfg}
      {{- end }}
      {{- if .Values.secrets.proxy }}
      - {name: X509_USER_PROXY, value: /run/secrets/proxy/x509up}
      {{- end }}
      {{- if .Values.secrets.token }}
      - {name: BEARER_TOKEN_FILE, value: /run/secrets/token/token}
      {{- end }}
      {{- if .Values.ftsEndpoint }}
      - {name: DC_INJECT_FTS_ENDPOINT, value: {{ .Values.ftsEndpoint | quote }}}
      {{- end }}
      {{- if .Values.trustHosts }}
      - {name: DC_INJECT_TRUST, value: {{ join " " .Values.trustHosts | quote }}}
      {{- end }}
      {{- with .Values.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    resources:
      {{- toYaml .Values.resources | nindent 6 }}
    {{- if eq .Values.mode "run" }}
    ports:
      - {name: metrics, containerPort: {{ .Values.metrics.port }}}
    livenessProbe:
      # 4 is that nothing arrives anywhere, which a new start does not change.
      exec: {command: [sh, -c, 'dc-inject health "$0" || [ $? -eq 4 ]', {{ .Values.campaign | quote }}]}
      # A start may wait a minute for a service, and its first cycle reads whole catalogues.
      initialDelaySeconds: 300
      periodSeconds: 60
      timeoutSeconds: 20
      failureThreshold: 5
    {{- end }}
    volumeMounts:
      - {name: ledger, mountPath: /ledger}
      - {name: tmp, mountPath: /tmp}
      - {name: menus, mountPath: /etc/dc_inject/menus, readOnly: true}
      {{- range $name, $secret := .Values.secrets }}
      {{- if $secret }}
      - {name: {{ $name }}, mountPath: /run/secrets/{{ $name }}, readOnly: true}
      {{- end }}
      {{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $affinity := deepCopy .Values.affinity }}
{{- if .Values.shards }}
{{- /* The ledgers of all shards are on one volume, so that any pod can read them: it is mounted on one node. */}}
{{- $labels := include "dc-inject.labels" . | fromYaml }}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) }}
{{- $together := dict "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) }}
{{- $affinity = merge $affinity $together }}
{{- end }}
{{- with $affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: 2Gi}
  - name: menus
    configMap: {name: {{ .Values.menusConfigMap | default (printf "%s-menus" .Release.Name) | quote }}}
  {{- range $name, $secret := .Values.secrets }}
  {{- if $secret }}
  - name: {{ $name }}
    secret: {secretName: {{ $secret | quote }}, defaultMode: 0400}
  {{- end }}
  {{- end }}
  {{- if or .Values.shards (eq .Values.mode "once") }}
  - name: ledger
    persistentVolumeClaim: {claimName: {{ .Release.Name }}-ledger}
  {{- end }}
{{- end }}

{{- define "dc-inject.claim" -}}
accessModes: [ReadWriteOnce]
{{- with .Values.ledger.storageClass }}
storageClassName: {{ . | quote }}
{{- end }}
resources:
  requests: {storage: {{ .Values.ledger.size }}}
{{- end }}
