//! Conversion of the file as it is written into a [`CompositionConfig`], and the rules between its keys.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use compose::SubscriptionEndpoint;
use config::diagnostic::{Diagnostic, Severity};
use config::{Document, Secret};
use http::HeaderName;
use upstream::belongs_to_connection;

use crate::composition_config::{CompositionConfig, SchemaSource, SubgraphConfig};
use crate::file_format::{
    CompositionFile, IntrospectionEntry, SubgraphEntries, SubgraphEntry, SubscriptionEntry,
};
use crate::subscription_settings::{is_subprotocol_unused, protocol_of};

/// Converts a file. `document` has its mistakes so far.
pub(crate) fn convert(
    mut document: Document<CompositionFile>,
    path: &Path,
) -> Result<CompositionConfig, Vec<Diagnostic>> {
    let mut diagnostics = std::mem::take(&mut document.diagnostics);
    let file = document.value.take();
    let mut converter = Converter {
        document: &document,
        has_findings: !diagnostics.is_empty(),
        folder: path.parent().unwrap_or(Path::new("")),
        found: Vec::new(),
    };
    let subgraphs = file.map(|file| converter.convert_file(file));
    diagnostics.append(&mut converter.found);
    // The order of the file; a sort of few elements, stable.
    diagnostics.sort_by_key(|it| it.span.as_ref().map_or(usize::MAX, |span| span.bytes.start));
    let has_errors = diagnostics.iter().any(|it| it.severity == Severity::Error);
    match subgraphs {
        Some(subgraphs) if !has_errors => Ok(CompositionConfig {
            subgraphs,
            path: path.to_owned(),
            warnings: diagnostics,
            source: Some(document.source),
        }),
        _ => Err(diagnostics),
    }
}

struct Converter<'a> {
    document: &'a Document<CompositionFile>,
    /// True if keys that were reported as invalid may be missing here.
    has_findings: bool,
    folder: &'a Path,
    found: Vec<Diagnostic>,
}

impl Converter<'_> {
    fn convert_file(&mut self, file: CompositionFile) -> Vec<SubgraphConfig> {
        if let Some(version) = file.version.filter(|version| version != "1") {
            let message = format!("version {version:?} of this file is not known");
            let diagnostic = Diagnostic::error("invalid-value", message);
            self.add(
                "version",
                true,
                "only 1 is",
                diagnostic.help("write `version: 1`, or remove the key"),
            );
        }
        if file.federation_version.is_some() {
            let message = "`federation_version` has no effect";
            let help = "each subgraph is read by the version in its own `@link`; the key may stay for other tools";
            let diagnostic = Diagnostic::warning("unused-key", message).help(help);
            self.add("federation_version", false, "ignored", diagnostic);
        }
        let entries: Vec<(String, String, SubgraphEntry)> = match file.subgraphs {
            SubgraphEntries::Named(entries) => entries
                .into_iter()
                .map(|(name, entry)| (format!("subgraphs.{name}"), name, entry))
                .collect(),
            SubgraphEntries::Listed(entries) => entries
                .into_iter()
                .enumerate()
                .map(|(index, it)| (format!("subgraphs[{index}]"), it.name, it.entry))
                .collect(),
        };
        if entries.is_empty() && !self.has_findings {
            let diagnostic = Diagnostic::error("no-subgraphs", "there are no subgraphs to compose");
            let help =
                "name at least one: `subgraphs: {products: {schema: {file: products.graphql}}}`";
            self.add("subgraphs", false, "nothing is given here", diagnostic.help(help));
        }
        self.check_duplicate_names(&entries);
        let mut subgraphs = Vec::with_capacity(entries.len());
        for (path, name, entry) in entries {
            subgraphs.extend(self.convert_subgraph(&path, name, entry));
        }
        subgraphs
    }

    /// Reports names that are in a list twice. In a mapping they are duplicate keys, which have been reported.
    fn check_duplicate_names(&mut self, entries: &[(String, String, SubgraphEntry)]) {
        let mut first_paths: HashMap<&str, String> = HashMap::new();
        for (path, name, _) in entries {
            let name_path = format!("{path}.name");
            let Some(first) = first_paths.get(name.as_str()) else {
                first_paths.insert(name, name_path);
                continue;
            };
            let mut diagnostic =
                Diagnostic::error("duplicate-name", format!("two subgraphs are named `{name}`"))
                    .help(
                        "give each subgraph a name of its own: logs, metrics and settings use it",
                    );
            if let Some(span) = self.document.value_span(first) {
                diagnostic = diagnostic.related(span, "first given here");
            }
            self.add(&name_path, true, "given again here", diagnostic);
        }
    }

    fn convert_subgraph(
        &mut self,
        path: &str,
        name: String,
        entry: SubgraphEntry,
    ) -> Option<SubgraphConfig> {
        if entry.schema.is_some() && entry.introspection.is_some() {
            let message = format!("the introspection of subgraph `{name}` has no effect");
            let help = "remove it, or remove `schema` to read the schema from the server";
            let diagnostic = Diagnostic::warning("unused-key", message).help(help);
            self.add(
                &format!("{path}.introspection"),
                false,
                "`schema` takes precedence",
                diagnostic,
            );
        }
        let (source_path, schema) = self.convert_source(path, &name, &entry)?;
        if entry.subscription.is_some() {
            self.check_subscription_owner(path, &name, &entry);
        }
        let subscription = entry.subscription.map(|it| self.convert_subscription(path, it));
        let place = self.document.value_span(&source_path).or_else(|| self.document.key_span(path));
        Some(SubgraphConfig { name, routing_url: entry.routing_url, schema, subscription, place })
    }

    /// Returns the source of a schema, and the path of the key that names it.
    fn convert_source(
        &mut self,
        path: &str,
        name: &str,
        entry: &SubgraphEntry,
    ) -> Option<(String, SchemaSource)> {
        if let Some(schema) = &entry.schema {
            if let Some(file) = &schema.file {
                let source = SchemaSource::File(self.folder.join(file).components().collect());
                return Some((format!("{path}.schema.file"), source));
            }
            if let Some(sdl) = &schema.sdl {
                return Some((format!("{path}.schema.sdl"), SchemaSource::Inline(sdl.clone())));
            }
            let headers_path = format!("{path}.schema.introspection_headers");
            let headers = self.convert_headers(&headers_path, &schema.introspection_headers);
            let url = schema.subgraph_url.clone()?;
            let source = SchemaSource::Introspection { url, headers, is_plain: false };
            return Some((format!("{path}.schema.subgraph_url"), source));
        }
        let none = IntrospectionEntry { url: None, headers: BTreeMap::new(), raw: false };
        let introspection = entry.introspection.as_ref().unwrap_or(&none);
        let (key, url) = match (&introspection.url, &entry.routing_url) {
            (Some(url), _) => ("introspection.url", url),
            // As in other tools, a subgraph without a schema is asked at its own URL.
            (None, Some(url)) => ("routing_url", url),
            (None, None) => {
                if !self.has_findings {
                    let message = format!("subgraph `{name}` has no schema");
                    let help = "add `schema: {file: FILE}`, or `introspection: {url: URL}` to ask its server";
                    let diagnostic = Diagnostic::error("missing-key", message).help(help);
                    self.add(path, false, "`schema` is needed here", diagnostic);
                }
                return None;
            }
        };
        let headers_path = format!("{path}.introspection.headers");
        let headers = self.convert_headers(&headers_path, &introspection.headers);
        let source =
            SchemaSource::Introspection { url: url.clone(), headers, is_plain: introspection.raw };
        Some((format!("{path}.{key}"), source))
    }

    fn convert_headers(
        &mut self,
        path: &str,
        headers: &BTreeMap<String, Secret>,
    ) -> Vec<(String, Secret)> {
        for name in headers.keys() {
            let (label, help) = match HeaderName::try_from(name.as_str()) {
                Err(_) => (
                    "this is not the name of a header",
                    "write letters, digits and hyphens: `authorization`, `x-api-key`",
                ),
                Ok(name) if belongs_to_connection(&name) => {
                    ("this header is determined by the request itself", "remove it")
                }
                Ok(_) => continue,
            };
            let message = format!("the header `{name}` cannot be sent");
            let diagnostic = Diagnostic::error("invalid-value", message).help(help);
            self.add(&format!("{path}.{name}"), false, label, diagnostic);
        }
        headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    fn convert_subscription(
        &mut self,
        path: &str,
        entry: SubscriptionEntry,
    ) -> SubscriptionEndpoint {
        let path = format!("{path}.subscription");
        let protocol = protocol_of(&entry);
        if is_subprotocol_unused(&entry) {
            let message = format!("`{path}.websocket_subprotocol` has no effect");
            let help = "remove it: the protocol is not `ws`";
            let diagnostic = Diagnostic::warning("unused-key", message).help(help);
            self.add(&format!("{path}.websocket_subprotocol"), false, "ignored", diagnostic);
        }
        if let (Some(protocol), Some(url)) = (protocol, &entry.url)
            && !protocol.accepts_url(url)
        {
            let message = format!("`{path}` has the URL of a WebSocket");
            let help = "write `http://` or `https://`, or `protocol: ws`";
            let diagnostic = Diagnostic::error("conflict", message).help(help);
            self.add(&format!("{path}.url"), true, "only for a WebSocket", diagnostic);
        }
        SubscriptionEndpoint {
            protocol: protocol.map(|it| it.name().into()),
            url: entry.url.map(Into::into),
        }
    }

    /// Warns about settings of an event subgraph: a subgraph with a server has a routing URL.
    fn check_subscription_owner(&mut self, path: &str, name: &str, entry: &SubgraphEntry) {
        let asks_server = entry.schema.as_ref().is_none_or(|it| it.subgraph_url.is_some());
        if entry.routing_url.is_some() || asks_server {
            return;
        }
        let message = format!("the subscription settings of subgraph `{name}` have no effect");
        let help = "an event subgraph has no server; for another subgraph, add `routing_url`";
        let diagnostic = Diagnostic::warning("unused-key", message).help(help);
        self.add(&format!("{path}.subscription"), false, "ignored", diagnostic);
    }

    /// Adds a finding at the key of `path`, or at its value.
    fn add(&mut self, path: &str, at_value: bool, label: &str, diagnostic: Diagnostic) {
        let document = self.document;
        let span = if at_value { document.value_span(path) } else { document.key_span(path) };
        let diagnostic = diagnostic.in_source(&document.source);
        self.found.push(match span {
            Some(span) => diagnostic.at(span, label),
            None => diagnostic,
        });
    }
}
