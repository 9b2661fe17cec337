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

{{/* Template of a sandbox's pods, placed and spread as sharedJudge.sandbox; argument: (dict "root" $ "component" "sandbox"
     "slots" ... "cpu" REQUEST "memory" ... "runtimeClassName" "" "flags" (list ...)). A runtime class contains programs itself,
     so that level seccomp suffices. */}}
{{- define "evalrun.sandboxPod" -}}
{{- $root := .root }}
{{- $judge := $root.Values.sharedJudge }}
{{- $placed := merge (dict "values" $judge.sandbox) (pick . "root" "component") }}
{{- $token := dict "name" (include "evalrun.sandboxSecret" $root) "key" $judge.sandboxToken.key }}
{{- $tls := include "evalrun.tlsSecret" (dict "root" $root "named" $judge.tls.sandboxSecret "issued" "sandbox_secret") }}
{{- $probed := ternary "health" "http" (ne $tls "") }}
metadata:
  {{- include "evalrun.podMetadata" $placed | nindent 2 }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- include "evalrun.pullSecrets" $root | nindent 2 }}
  {{- include "evalrun.placement" $judge.sandbox | nindent 2 }}
  {{- include "evalrun.spread" $placed | nindent 2 }}
  securityContext:
    {{- include "evalrun.podSecurity" $root | nindent 4 }}
  terminationGracePeriodSeconds: 90
  containers:
    - name: sandbox
      image: {{ include "evalrun.image" (dict "root" $root "name" "sandbox") }}
      imagePullPolicy: {{ $root.Values.images.pullPolicy }}
      command: [python, -m, evalrun_sandbox]
      args:
        - --slots={{ int64 .slots }}
        {{- range .flags }}
        - {{ . }}
        {{- end }}
        - --required-level={{ ternary "seccomp" "full" (ne .runtimeClassName "") }}
        - --host=0.0.0.0
        - --port=8080
        - --metrics-port=9090
        {{- with $root.Values.metrics.tokenSha256 }}
        - --metrics-token-sha256={{ join "," . }}
        {{- end }}
        {{- if $tls }}
        - --tls-folder=/etc/evalrun/tls
        - --health-port=9091
        {{- end }}
        - --log-format=json
      env:
        - {name: EVALRUN_SANDBOX_TOKEN_FILE, value: /etc/evalrun/identity/sandbox-token}
      ports:
        - {name: http, containerPort: 8080}
        - {name: metrics, containerPort: 9090}
        {{- if $tls }}
        - {name: health, containerPort: 9091}
        {{- end }}
      # /v1/ping asks for no token. It listens only once its containment was probed and is as required.
      startupProbe:
        httpGet: {path: /v1/ping, port: {{ $probed }}}
        periodSeconds: 2
        failureThreshold: 60
      readinessProbe:
        httpGet: {path: /v1/ping, port: {{ $probed }}}
        periodSeconds: 5
        timeoutSeconds: 5
      # Patient: programs may have every CPU of the pod for themselves.
      livenessProbe:
        httpGet: {path: /v1/ping, port: {{ $probed }}}
        periodSeconds: 20
        timeoutSeconds: 10
        failureThreshold: 6
      # Requests are the limits, unless told otherwise: a neighbour's load must not become a program's time limit.
      resources:
        requests: {cpu: {{ .cpu | quote }}, memory: {{ .memory }}}
        limits: {cpu: {{ .slots | quote }}, memory: {{ .memory }}}
      securityContext:
        {{- include "evalrun.containerSecurity" $root | nindent 8 }}
      terminationMessagePolicy: FallbackToLogsOnError
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: identity, mountPath: /etc/evalrun/identity, readOnly: true}
        {{- if $tls }}
        - {name: tls, mountPath: /etc/evalrun/tls, readOnly: true}
        {{- end }}
  volumes:
    {{- include "evalrun.identityVolume" (dict "sandbox-token" $token) | nindent 4 }}
    {{- with $tls }}
    {{- include "evalrun.tlsVolume" . | nindent 4 }}
    {{- end }}
    - {name: tmp, emptyDir: {sizeLimit: {{ $judge.sandbox.scratchSize }}}}
{{- end }}
