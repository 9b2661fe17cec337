{{/* Rules that several NetworkPolicies have. Those of runs are evalrun_operator.resources.network's (a test compares). */}}

{{/* The cluster's DNS. Its pods may listen on 5353, and enforcers see a packet after the Service was translated. */}}
{{- define "evalrun.dnsRule" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
    - {protocol: UDP, port: 5353}
    - {protocol: TCP, port: 5353}
  to:
    {{- toYaml .Values.networkPolicy.dns | nindent 4 }}
{{- end }}
