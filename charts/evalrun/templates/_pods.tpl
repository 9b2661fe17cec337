{{/* What all pods have in common: they satisfy the Pod Security Standard "restricted", and have a read-only root. */}}

{{/* 10001 is the user of the images of Dockerfile.judge. */}}
{{- define "evalrun.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "evalrun.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Labels and annotations of a pod; argument: (dict "root" $ "component" "judge" "values" .Values... "metrics" true). */}}
{{- define "evalrun.podMetadata" -}}
labels:
  {{- include "evalrun.labels" . | nindent 2 }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $notes := dict }}
{{- if .root.Values.metrics.annotations }}
{{- $notes = dict "prometheus.io/scrape" "true" "prometheus.io/port" "9090" }}
{{- end }}
{{- $notes = merge (dict) .values.podAnnotations $notes }}
{{- with $notes }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where a pod may run; argument: its values. */}}
{{- define "evalrun.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
tolerations:
  {{- with .tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  # Kubernetes' own default is five minutes on a node that is lost.
  {{- range tuple "not-ready" "unreachable" }}
  - {key: node.kubernetes.io/{{ . }}, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
  {{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .schedulerName }}
schedulerName: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "evalrun.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Spread a component as its values say, else over nodes where there are several; argument: (dict "root" $ "component"
     "judge" "values" .Values...). */}}
{{- define "evalrun.spread" -}}
{{- $component := . }}
topologySpreadConstraints:
  {{- range default (list (dict "topologyKey" "kubernetes.io/hostname")) .values.topologySpread }}
  - maxSkew: {{ default 1 .maxSkew | int64 }}
    topologyKey: {{ .topologyKey | quote }}
    whenUnsatisfiable: {{ default "ScheduleAnyway" .whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "evalrun.selector" $component | nindent 8 }}
  {{- end }}
{{- end }}

{{/* Probes of a sandbox; argument: the port that answers them. */}}
{{- define "evalrun.sandboxProbes" -}}
# /v1/ping asks for no token. It listens only once its containment was probed and is as required.
startupProbe:
  httpGet: {path: /v1/ping, port: {{ . }}}
  periodSeconds: 2
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /v1/ping, port: {{ . }}}
  periodSeconds: 5
  timeoutSeconds: 5
# Patient: programs may have every CPU of the pod for themselves.
livenessProbe:
  httpGet: {path: /v1/ping, port: {{ . }}}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
{{- end }}
