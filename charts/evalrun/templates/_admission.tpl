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

{{/* The message of a refusal, CEL: what is refused, what is allowed, and the list that says so; argument: (list WHAT LIST). */}}
{{- define "evalrun.refusal" -}}
{{- $list := last . }}
{{- printf "%s + (size(variables.allowed.%s) == 0 ? \"none\" : variables.allowed.%s.join(\", \")) + %s" (printf "%s is not allowed here. Allowed: " (first .) | quote) $list $list (printf " (admission.allowed.%s of the evalrun chart, for one namespace admission.namespaces)" $list | quote) | toJson }}
{{- end }}
