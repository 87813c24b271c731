{{- define "penstock.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Deployment and Lease of one operator: (list . shard); without shards the shard is empty. */ -}}
{{- define "penstock.operator" -}}
{{- include "penstock.fullname" (index . 0) }}{{ with (index . 1).name }}-{{ . }}{{ end -}}
{{- end -}}

{{- define "penstock.shard" -}}
{{- with .name }}penstock.dev/operator-shard: {{ . }}{{ end -}}
{{- end -}}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: penstock
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "penstock.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "penstock.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "penstock.priorityClass" -}}
{{- if .Values.priorityClassName -}}
{{- .Values.priorityClassName -}}
{{- else if .Values.priorityClass.create -}}
{{- include "penstock.fullname" . -}}
{{- end -}}
{{- end -}}

{{- define "penstock.jobPodMonitors" -}}
{{- if and .Values.metrics.jobPodMonitors.enabled (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") -}}
true
{{- end -}}
{{- end -}}

{{- define "penstock.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* By name only, never list or watch: the job's own tokens, and the credentials that storage.secretName names. */ -}}
{{- define "penstock.secretRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
{{- end -}}

{{- /* The operator's rights in the namespaces of its FlinkJobs. The allow-list of the RBAC test has every line. */ -}}
{{- define "penstock.rules" -}}
- apiGroups: [penstock.dev]
  resources: [flinkjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [penstock.dev]
  resources: [flinksnapshots]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [penstock.dev]
  resources: [flinkclusters]
  verbs: [get, list, watch, patch]
- apiGroups: [penstock.dev]
  resources: [flinkjobs/status, flinksnapshots/status, flinkclusters/status]
  verbs: [update]
- apiGroups: [penstock.dev]
  resources: [flinkjobs/finalizers, flinksnapshots/finalizers, flinkclusters/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, patch, delete]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create, patch]
{{- if not .Values.rbac.secretNamespaces }}
{{ include "penstock.secretRules" . }}
{{- end }}
- apiGroups: [""]
  resources: [events]
  verbs: [create]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies, ingresses]
  verbs: [get, create, patch, delete]
{{- if include "penstock.jobPodMonitors" . }}
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, create, patch]
{{- end }}
{{- end -}}
