{{- /* Prefix of cluster-scoped names, as in install_manifests.py. A namespace has at most one installation. */}}
{{- define "entrepot.installation" -}}
{{- if eq .Release.Namespace "entrepot-system" }}entrepot{{ else }}entrepot-{{ .Release.Namespace }}{{ end -}}
{{- end }}

{{- define "entrepot.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: entrepot
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}
