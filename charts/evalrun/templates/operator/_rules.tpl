{{- define "evalrun.clusterRules" -}}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]}
{{- end }}
{{- define "evalrun.runRules" -}}
- {apiGroups: [evalrun.dev], resources: [evalruns], verbs: [get, list, watch, patch]}
- {apiGroups: [evalrun.dev], resources: [evalruns/status], verbs: [get, patch]}
{{- end }}
