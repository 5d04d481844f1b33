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
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "starling.labels" -}}
{{ include "starling.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The source of a graph: `sdl`, `existingConfigMap`, `url` or `directory`. Fails unless there is exactly one. */}}
{{- define "starling.source" -}}
{{- $given := list -}}
{{- range $source := list "sdl" "existingConfigMap" "url" -}}
{{- if get $.supergraph $source -}}
{{- $given = append $given $source -}}
{{- end -}}
{{- end -}}
{{- $directory := .supergraph.directory | default dict -}}
{{- if or $directory.schemas $directory.existingConfigMaps -}}
{{- $given = append $given "directory" -}}
{{- end -}}
{{- if not $given -}}
{{- $others := printf "%s.existingConfigMap, %s.url or %s.directory" .key .key .key -}}
{{- fail (printf "%s has no source: give its text by --set-file '%s.sdl=%s', or set %s" .key .key .file $others) -}}
{{- end -}}
{{- if gt (len $given) 1 -}}
{{- fail (printf "%s.%s and %s.%s are both set: remove one of them" .key (index $given 0) .key (index $given 1)) -}}
{{- end -}}
{{- if and $directory.schemas $directory.existingConfigMaps -}}
{{- fail (printf "%s.directory.schemas and %s.directory.existingConfigMaps are both set: remove one of them" .key .key) -}}
{{- end -}}
{{- first $given -}}
{{- end -}}

{{/*
All graphs, as a JSON list: the name, the key in the values, the source, the name of the file in the folder of the
configuration, and the ConfigMap that the chart makes if it has the text. Empty with `existingConfigMap`.
*/}}
{{- define "starling.graphs" -}}
{{- $object := include "starling.name" . -}}
{{- $graphs := list -}}
{{- if not .Values.existingConfigMap -}}
{{- $files := dict "file" "supergraph.graphql" "configMap" (printf "%s-supergraph" $object) -}}
{{- $graphs = append $graphs (merge (dict "name" "default" "key" "supergraph") (pick .Values "supergraph") $files) -}}
{{- range $index, $graph := .Values.graphs -}}
{{- $files := dict "file" (printf "graph-%s.graphql" $graph.name) "configMap" (printf "%s-graph-%s" $object $graph.name) -}}
{{- $key := printf "graphs[%d].supergraph" $index -}}
{{- $graphs = append $graphs (merge (dict "key" $key) $graph $files) -}}
{{- end -}}
{{- end -}}
{{- range $graph := $graphs -}}
{{- /* Helm removes a key with the value null. */ -}}
{{- $_ := set $graph "supergraph" ($graph.supergraph | default dict) -}}
{{- $_ := set $graph "source" (include "starling.source" $graph) -}}
{{- if eq $graph.source "directory" -}}
{{- $_ := set $graph "configMap" (printf "%s-schemas-%s" $object $graph.name) -}}
{{- end -}}
{{- end -}}
{{- $graphs | toJson -}}
{{- end -}}

{{/*
The folder in which the schemas of a graph are mounted. It is outside the folder of the configuration, because a mount
point cannot be made in a read-only volume.
*/}}
{{- define "starling.schemaFolder" -}}
/etc/starling-schemas/{{ .name }}
{{- end -}}

{{/*
The ConfigMaps in the folder of the configuration, as a JSON list. `path` is the file of a further graph. All files are
at the top of the volume: the router is notified of an update there, and not in a folder below.
*/}}
{{- define "starling.configMaps" -}}
{{- $maps := list (dict "name" (.Values.existingConfigMap | default (include "starling.name" .))) -}}
{{- range $graph := include "starling.graphs" . | fromJsonArray -}}
{{- if has $graph.source (list "sdl" "existingConfigMap") -}}
{{- $map := dict "name" ($graph.supergraph.existingConfigMap | default $graph.configMap) -}}
{{- if ne $graph.key "supergraph" -}}
{{- $_ := set $map "path" $graph.file -}}
{{- end -}}
{{- $maps = append $maps $map -}}
{{- end -}}
{{- end -}}
{{- $maps | toJson -}}
{{- end -}}

{{/* Fails if the files of a ConfigMap have more bytes than the API server accepts. */}}
{{- define "starling.checkSize" -}}
{{- $bytes := 0 -}}
{{- range .files -}}
{{- $bytes = add $bytes (len .) -}}
{{- end -}}
{{- if gt (int $bytes) 1048576 -}}
{{- fail (printf "%s has %d bytes, and a ConfigMap holds 1048576 (1 MiB): %s" .key (int $bytes) .help) -}}
{{- end -}}
{{- end -}}

{{/* Fails if two files of a folder are the schema of one subgraph. */}}
{{- define "starling.checkSchemas" -}}
{{- $files := dict -}}
{{- range $file, $_ := .supergraph.directory.schemas -}}
{{- $subgraph := trimSuffix (ext $file) $file -}}
{{- with get $files $subgraph -}}
{{- fail (printf "%s.directory.schemas: %s and %s are both the schema of the subgraph %s: remove one of them" $.key . $file $subgraph) -}}
{{- end -}}
{{- $_ := set $files $subgraph $file -}}
{{- end -}}
{{- end -}}

{{/* The scheme of the admin listener. Beside `existingConfigMap`, `configuration.admin.tls` counts for this only. */}}
{{- define "starling.adminScheme" -}}
{{- $admin := .Values.configuration.admin | default dict -}}
{{- if $admin.tls }}https{{ else }}http{{ end -}}
{{- end -}}

{{/* The folder of the copies of supergraphs, if the chart chooses it for one of them. */}}
{{- define "starling.copyFolder" -}}
{{- $isNeeded := false -}}
{{- range include "starling.graphs" . | fromJsonArray -}}
{{- if and (eq .source "url") (not (.supergraph.url).copy) -}}
{{- $isNeeded = true -}}
{{- end -}}
{{- end -}}
{{- if $isNeeded }}/var/lib/starling{{ end -}}
{{- end -}}

{{/* `supergraph` in the configuration of the router, for one graph. */}}
{{- define "starling.supergraph" -}}
{{- if eq .source "url" -}}
{{- dict "url" (merge (deepCopy .supergraph.url) (dict "copy" (printf "/var/lib/starling/%s" .file))) | toJson -}}
{{- else if eq .source "directory" -}}
{{- dict "directory" (include "starling.schemaFolder" .) | toJson -}}
{{- else -}}
{{- dict "file" .file | toJson -}}
{{- end -}}
{{- end -}}

{{/* Fails for names and conditions of graphs with which the router would not start. */}}
{{- define "starling.checkGraphs" -}}
{{- $places := dict -}}
{{- range $index, $graph := .Values.graphs -}}
{{- if eq $graph.name "default" -}}
{{- fail (printf "graphs[%d].name is default, which is the graph of supergraph: choose another name" $index) -}}
{{- end -}}
{{- with get $places $graph.name -}}
{{- fail (printf "graphs[%d].name is %s, as is %s: give each graph a name of its own" $index $graph.name .) -}}
{{- end -}}
{{- $_ := set $places $graph.name (printf "graphs[%d].name" $index) -}}
{{- if not (or $graph.path $graph.host $graph.header) -}}
{{- fail (printf "graphs[%d] (%s) has no condition: add path, host or header" $index $graph.name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.graphs .Values.configuration.graphs -}}
{{- fail "graphs and configuration.graphs are both set: remove one of them" -}}
{{- end -}}
{{- if .Values.existingConfigMap -}}
{{- if .Values.graphs -}}
{{- fail "existingConfigMap is set: remove graphs, and list them in its starling.yaml" -}}
{{- end -}}
{{- $directory := (.Values.supergraph).directory | default dict -}}
{{- if or $directory.schemas $directory.existingConfigMaps -}}
{{- fail "existingConfigMap is set: remove supergraph.directory, or existingConfigMap" -}}
{{- end -}}
{{- end -}}
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
{{- $graphs := list -}}
{{- range $graph := include "starling.graphs" . | fromJsonArray -}}
{{- $source := include "starling.supergraph" $graph | fromJson -}}
{{- $graphs = append $graphs (merge (dict "supergraph" $source) (pick $graph "name" "path" "host" "header")) -}}
{{- end -}}
{{- $set := dict
  "listen" "0.0.0.0:4000"
  "admin" (dict "listen" "0.0.0.0:8088")
  "supergraph" (first $graphs).supergraph
  "shutdown" (dict "delay" (printf "%ds" (int .Values.shutdown.delaySeconds)))
  "subscriptions" (dict "drain_period" (printf "%ds" (int .Values.shutdown.drainSeconds)))
-}}
{{- with rest $graphs -}}
{{- $_ := set $set "graphs" . -}}
{{- end -}}
{{- if .Values.cursorKeys.existingSecret -}}
{{- $keys := list -}}
{{- range $index, $_ := .Values.cursorKeys.keys -}}
{{- $keys = append $keys (printf "${%s}" (include "starling.cursorVariable" $index)) -}}
{{- end -}}
{{- $_ := set $set "cursor" (dict "keys" $keys) -}}
{{- end -}}
{{- mergeOverwrite (deepCopy $given) $set | toYaml -}}
{{- end -}}
