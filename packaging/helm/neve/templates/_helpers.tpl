{{- /* Name of the resources of a release. */ -}}
{{- define "neve.name" -}}
{{- if contains "neve" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-neve" (.Release.Name | trunc 47 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "neve.selector" -}}
app.kubernetes.io/name: neve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "neve.labels" -}}
{{ include "neve.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* A value of TOML. YAML's numbers are floats here, which would print as 6.9e+07. */ -}}
{{- define "neve.toml.value" -}}
{{- if kindIs "float64" . -}}
{{- if eq . (floor .) }}{{ int64 . }}{{ else }}{{ toString . | toJson }}{{ end -}}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{- /* Lines of neve.toml. */ -}}
{{- define "neve.toml" -}}
{{- range $name, $value := .Values.settings }}
{{ $name }} = {{ include "neve.toml.value" $value }}
{{- end }}
{{- if .Values.upstreamHeaders.secret }}
{{- if hasKey .Values.settings "upstream-header-file" }}{{ fail "settings.upstream-header-file: given twice; remove it, or upstreamHeaders.secret" }}{{ end }}
upstream-header-file = "/run/neve/upstream-headers"
{{- end }}
{{- if .Values.keys.secret }}
{{- if hasKey .Values.settings "keys" }}{{ fail "settings.keys: given twice; remove it, or keys.secret" }}{{ end }}
keys = "/run/neve/keys"
{{- end }}
{{- end -}}
