{{/* Names, labels and images: each fact once. Ports and label keys are those of evalrun_api.names (a test compares). */}}

{{- define "evalrun.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "evalrun.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "evalrun.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "evalrun.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The labels of an object; argument: (dict "root" $ "component" "operator"). */}}
{{- define "evalrun.labels" -}}
{{ include "evalrun.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The labels by which a component's pods are selected; argument as above. */}}
{{- define "evalrun.selector" -}}
app.kubernetes.io/name: {{ include "evalrun.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* An image of ours; argument: (dict "root" $ "name" "judge"). */}}
{{- define "evalrun.image" -}}
{{- $images := .root.Values.images }}
{{- $image := index $images .name }}
{{- $repository := $image.repository }}
{{- if and $images.registry (ne .name "sandboxFusion") }}
{{- $repository = printf "%s/%s" (trimSuffix "/" $images.registry) $repository }}
{{- end }}
{{- if $image.digest }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (coalesce $image.tag $images.tag .root.Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- define "evalrun.serviceAccount" -}}
{{- default (printf "%s-operator" (include "evalrun.fullname" .)) .Values.operator.serviceAccount.name }}
{{- end }}

{{- define "evalrun.rewardSecret" -}}
{{- default (printf "%s-reward-token" (include "evalrun.fullname" .)) .Values.reward.token.existingSecret }}
{{- end }}

{{- define "evalrun.judgeSecret" -}}
{{- default (printf "%s-judge-token" (include "evalrun.fullname" .)) .Values.sharedJudge.token.existingSecret }}
{{- end }}

{{- define "evalrun.sandboxSecret" -}}
{{- default (printf "%s-sandbox-token" (include "evalrun.fullname" .)) .Values.sharedJudge.sandboxToken.existingSecret }}
{{- end }}

{{/* How the shared judge has TLS: issued, named or disabled. */}}
{{- define "evalrun.judgeTls" -}}
{{- $tls := .Values.sharedJudge.tls }}
{{- if ne (empty $tls.gatewaySecret) (empty $tls.sandboxSecret) }}
{{- fail "sharedJudge.tls: one of gatewaySecret and sandboxSecret is empty: write both, or neither for certificates that the operator issues" }}
{{- end }}
{{- if and $tls.gatewaySecret (eq $tls.mode "disabled") }}
{{- fail "sharedJudge.tls: Secrets are named, and mode is disabled: write one of them" }}
{{- end }}
{{- ternary "named" $tls.mode (ne $tls.gatewaySecret "") }}
{{- end }}

{{/* The shared judge as the operator issues certificates for it: a JSON object; an empty one if it does not. */}}
{{- define "evalrun.issuedJudge" -}}
{{- if and .Values.sharedJudge.enabled (eq (include "evalrun.judgeTls" .) "issued") }}
{{- $name := include "evalrun.fullname" . }}
{{- toJson (dict "namespace" .Release.Namespace "gateway" (printf "%s-judge" $name) "sandbox" (printf "%s-sandbox" $name) "authority_secret" (printf "%s-judge-authority" $name) "gateway_secret" (printf "%s-judge-tls" $name) "sandbox_secret" (printf "%s-sandbox-tls" $name) "caller_secret" (printf "%s-judge-caller-tls" $name)) }}
{{- else }}
{}
{{- end }}
{{- end }}

{{/* Secret with a certificate of the shared judge; empty for plain text; argument: (dict "root" $ "named" SECRET "issued"
     "gateway_secret"). */}}
{{- define "evalrun.tlsSecret" -}}
{{- with include "evalrun.issuedJudge" .root | fromJson }}
{{- index . $.issued }}
{{- else }}
{{- .named }}
{{- end }}
{{- end }}

{{/* Volume with a certificate as files; the kubelet waits until the Secret has them; argument: its name. */}}
{{- define "evalrun.tlsVolume" -}}
- name: tls
  secret:
    secretName: {{ . | quote }}
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}, {key: ca.crt, path: ca.crt}]
{{- end }}

{{/* Secret that the operator fills; argument: (dict "root" $ "component" "judge" "name" ... "key" ...), the key where a
     token is written, once. */}}
{{- define "evalrun.filledSecret" -}}
{{- $live := lookup "v1" "Secret" .root.Release.Namespace .name }}
# No value is rendered: the operator writes one where there is none, so rendering again changes nothing.
apiVersion: v1
kind: Secret
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "evalrun.labels" . | nindent 4 }}
type: Opaque
{{- if and .key (not (dig "metadata" "annotations" "evalrun.dev/filled-by" "" $live)) }}
{{- with dig "data" .key "" $live }}
# Rendered by an earlier release of the chart, so that Helm would delete what is left out here.
data:
  {{ $.key | quote }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Tokens that the operator writes: a JSON list of NAMESPACE/NAME/KEY; empty if there are none. */}}
{{- define "evalrun.sharedTokens" -}}
{{- $places := list }}
{{- $judge := .Values.sharedJudge }}
{{- if $judge.enabled }}
{{- if not $judge.token.existingSecret }}
{{- $places = append $places (printf "%s/%s/%s" .Release.Namespace (include "evalrun.judgeSecret" .) $judge.token.key) }}
{{- end }}
{{- if not $judge.sandboxToken.existingSecret }}
{{- $places = append $places (printf "%s/%s/%s" .Release.Namespace (include "evalrun.sandboxSecret" .) $judge.sandboxToken.key) }}
{{- end }}
{{- end }}
{{- if and .Values.reward.enabled (not .Values.reward.token.existingSecret) }}
{{- $places = append $places (printf "%s/%s/%s" .Release.Namespace (include "evalrun.rewardSecret" .) .Values.reward.token.key) }}
{{- end }}
{{- with include "evalrun.issuedJudge" . | fromJson }}
{{- $places = append $places (printf "%s/%s/seed" .namespace .authority_secret) }}
{{- end }}
{{- with $places }}
{{- toJson . }}
{{- end }}
{{- end }}

{{/* Secrets that the operator writes: a JSON list of names; empty if there are none. */}}
{{- define "evalrun.filledSecrets" -}}
{{- $names := list }}
{{- with include "evalrun.sharedTokens" . }}
{{- range fromJsonArray . }}
{{- $names = append $names (index (splitList "/" .) 1) }}
{{- end }}
{{- end }}
{{- with include "evalrun.issuedJudge" . | fromJson }}
{{- $names = concat $names (list .gateway_secret .sandbox_secret .caller_secret) }}
{{- end }}
{{- with $names }}
{{- toJson (uniq .) }}
{{- end }}
{{- end }}

{{/* Volume with tokens as files, which the kubelet exchanges when a Secret changes; argument: file by file, (dict
     "judge-token" (dict "name" ... "key" ...)). */}}
{{- define "evalrun.identityVolume" -}}
- name: identity
  projected:
    sources:
    {{- range $file, $secret := . }}
      - secret: {name: {{ $secret.name | quote }}, items: [{key: {{ $secret.key | quote }}, path: {{ $file }}}]}
    {{- end }}
{{- end }}

{{/* The release that made a CRD, as namespace/name; empty if there is none, or no release made it. Call with the CRD's name. */}}
{{- define "evalrun.crdOwner" -}}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" . | default dict }}
{{- with dig "metadata" "annotations" "meta.helm.sh/release-name" "" $there -}}
{{ dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" $there }}/{{ . }}
{{- end }}
{{- end }}

{{/* Whether this release makes a CRD: not where another release has made it already. Call with dict root and name. */}}
{{- define "evalrun.makesCrd" -}}
{{- $owner := include "evalrun.crdOwner" .name }}
{{- if and .root.Values.crds.create (or (not $owner) (eq $owner (printf "%s/%s" .root.Release.Namespace .root.Release.Name))) -}}
true
{{- end }}
{{- end }}
