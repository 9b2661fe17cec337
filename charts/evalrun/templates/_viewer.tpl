{{/* Values of a namespace's viewer as JSON: `viewer` with what the namespace says otherwise; argument: (dict "root" $
     "namespace" "evals" "own" its values). What would be open to all, or of no use, is refused. */}}
{{- define "evalrun.viewer" -}}
{{- $viewer := mergeOverwrite (deepCopy (omit .root.Values.viewer "namespaces")) (deepCopy (default dict .own)) }}
{{- $place := printf "viewer.namespaces.%s" .namespace }}
{{- if not (or $viewer.token.existingSecret $viewer.proxy.header) }}
{{- fail (printf "%s: anyone could read every answer: name a Secret in token.existingSecret, or an authenticating proxy's header in proxy.header" $place) }}
{{- end }}
{{- if ne (empty $viewer.proxy.header) (empty $viewer.proxy.addresses) }}
{{- fail (printf "%s.proxy: one of header and addresses is empty: write both, as anyone else could send the header too" $place) }}
{{- end }}
{{- if not (or $viewer.claim $viewer.places $viewer.live) }}
{{- fail (printf "%s: it has nothing to show: write claim, places or live" $place) }}
{{- end }}
{{- if and $viewer.ingress.enabled $viewer.httpRoute.enabled }}
{{- fail (printf "%s: ingress and httpRoute are both enabled: disable one of them" $place) }}
{{- end }}
{{- if or $viewer.ingress.enabled $viewer.httpRoute.enabled }}
{{- if not $viewer.hosts }}
{{- fail (printf "%s.hosts: name the host under which the ingress or httpRoute serves it" $place) }}
{{- end }}
{{- if and .root.Values.networkPolicy.enabled (not $viewer.clients) }}
{{- fail (printf "%s.clients: nobody may connect to it: name the pods of the Ingress controller or Gateway, as NetworkPolicy peers" $place) }}
{{- end }}
{{- end }}
{{- if and $viewer.httpRoute.enabled (not $viewer.httpRoute.parentRefs) }}
{{- fail (printf "%s.httpRoute.parentRefs: name the Gateway, e.g. [{name: public, namespace: gateways}]" $place) }}
{{- end }}
{{- toJson $viewer }}
{{- end }}
