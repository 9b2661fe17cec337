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
