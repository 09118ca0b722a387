{{- define "sublet.resource" -}}
sublet.dev/vram-{{ div (include "sublet.unitBytes" . | int64) 1048576 }}mi
{{- end }}
{{- define "sublet.unitBytes" -}}
{{- $number := regexFind "^[0-9]+" .Values.unit | int64 -}}
{{- if hasSuffix "Gi" .Values.unit }}{{ mul $number 1073741824 }}{{ else }}{{ mul $number 1048576 }}{{ end -}}
{{- end }}
{{- define "sublet.labels" -}}
app.kubernetes.io/name: sublet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
{{- /* Kubernetes before 1.36 has no capacities that several claims share, and no policy that changes a pod. */ -}}
{{- define "sublet.dra" -}}
{{- if and (has "dra" .Values.doors) (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) }}yes{{ end -}}
{{- end }}
{{- define "sublet.gpuMem" -}}
{{- if and .Values.gpuMem (has "plugin" .Values.doors) (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) }}yes{{ end -}}
{{- end }}
{{- define "sublet.doors" -}}
{{- if has "plugin" .Values.doors }}plugin{{ end }}
{{- if and (has "plugin" .Values.doors) (eq (include "sublet.dra" .) "yes") }},{{ end }}
{{- if eq (include "sublet.dra" .) "yes" }}dra{{ end }}
{{- end }}
