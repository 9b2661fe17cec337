{{/* Whether admission policies are made: they belong to the cluster, so not for named namespaces. Empty: no. */}}
{{- define "evalrun.admission" -}}
{{- if and .Values.admission.enabled (not .Values.operator.watchNamespaces) (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}
yes
{{- end }}
{{- end }}

{{/* The condition that a request is the operator's. */}}
{{- define "evalrun.isOperator" -}}
- name: by-the-operator
  expression: 'request.userInfo.username == "system:serviceaccount:{{ .Release.Namespace }}:{{ include "evalrun.serviceAccount" . }}"'
{{- end }}

{{/* The message of a refusal, CEL; argument: the list of admission.allowed. */}}
{{- define "evalrun.refusal" -}}
{{- index (include "evalrun.refusals" "" | fromJson) . | toJson }}
{{- end }}

{{/* The lists of admission.allowed by namespace, "" for all others; JSON. */}}
{{- define "evalrun.allowLists" -}}
{{- $registry := empty .Values.images.registry | ternary list (list (printf "%s/" (trimSuffix "/" .Values.images.registry))) }}
{{- $lists := dict }}
{{- range $namespace, $own := merge (dict "" dict) .Values.admission.namespaces }}
{{- $allowed := merge (dict) $own $.Values.admission.allowed }}
{{- $_ := set $lists $namespace (merge (dict "images" (concat $registry $allowed.images)) $allowed) }}
{{- end }}
{{- toJson $lists }}
{{- end }}
