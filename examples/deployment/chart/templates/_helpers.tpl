{{/* The name of all objects: the release, and that of the chart where it says more. */}}
{{- define "starling.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels that select the pods. They must never change. */}}
{{- define "starling.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "starling.labels" -}}
{{ include "starling.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The ConfigMaps with `starling.yaml` and `supergraph.graphql`, as JSON lists. */}}
{{- define "starling.configMaps" -}}
{{- $name := include "starling.name" . -}}
{{- if .Values.existingConfigMap -}}
{{- list .Values.existingConfigMap | toJson -}}
{{- else if .Values.supergraph.url -}}
{{- list $name | toJson -}}
{{- else -}}
{{- list $name (.Values.supergraph.existingConfigMap | default (printf "%s-supergraph" $name)) | toJson -}}
{{- end -}}
{{- end -}}

{{/* The scheme of the admin listener. Beside `existingConfigMap`, `configuration.admin.tls` counts for this only. */}}
{{- define "starling.adminScheme" -}}
{{- $admin := .Values.configuration.admin | default dict -}}
{{- if $admin.tls }}https{{ else }}http{{ end -}}
{{- end -}}

{{/* The folder of the copy of the supergraph, if the chart chooses it. */}}
{{- define "starling.copyFolder" -}}
{{- $url := .Values.supergraph.url -}}
{{- if and $url (not $url.copy) (not .Values.existingConfigMap) }}/var/lib/starling{{ end -}}
{{- end -}}

{{/* The environment variable of a key of cursors. */}}
{{- define "starling.cursorVariable" -}}
{{- if eq (int .) 0 }}CURSOR_KEY{{ else }}CURSOR_KEY_{{ add . 1 }}{{ end -}}
{{- end -}}

{{/* The configuration: that of the values, and the settings that must fit the other objects. */}}
{{- define "starling.configuration" -}}
{{- $given := .Values.configuration -}}
{{- range $key := list "listen" "supergraph" "shutdown" -}}
{{- if hasKey $given $key -}}
{{- fail (printf "configuration.%s is set by the chart: remove it%s" $key (eq $key "shutdown" | ternary ", and use shutdown.delaySeconds" "")) -}}
{{- end -}}
{{- end -}}
{{- range $key, $names := dict "admin" (list "listen") "cursor" (list "keys") "subscriptions" (list "drain_period") -}}
{{- range $name := $names -}}
{{- if hasKey (get $given $key | default dict) $name -}}
{{- fail (printf "configuration.%s.%s is set by the chart: remove it, and use %s" $key $name (get (dict "listen" "adminService" "keys" "cursorKeys" "drain_period" "shutdown.drainSeconds") $name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $supergraph := dict "file" "supergraph.graphql" -}}
{{- with .Values.supergraph.url -}}
{{- if or $.Values.supergraph.sdl $.Values.supergraph.existingConfigMap -}}
{{- fail "supergraph.url is set: remove supergraph.sdl and supergraph.existingConfigMap" -}}
{{- end -}}
{{- $supergraph = dict "url" (mergeOverwrite (dict "copy" "/var/lib/starling/supergraph.graphql") (deepCopy .)) -}}
{{- end -}}
{{- $set := dict
  "listen" "0.0.0.0:4000"
  "admin" (dict "listen" "0.0.0.0:8088")
  "supergraph" $supergraph
  "shutdown" (dict "delay" (printf "%ds" (int .Values.shutdown.delaySeconds)))
  "subscriptions" (dict "drain_period" (printf "%ds" (int .Values.shutdown.drainSeconds)))
-}}
{{- if .Values.cursorKeys.existingSecret -}}
{{- $keys := list -}}
{{- range $index, $_ := .Values.cursorKeys.keys -}}
{{- $keys = append $keys (printf "${%s}" (include "starling.cursorVariable" $index)) -}}
{{- end -}}
{{- $_ := set $set "cursor" (dict "keys" $keys) -}}
{{- end -}}
{{- mergeOverwrite (deepCopy $given) $set | toYaml -}}
{{- end -}}
