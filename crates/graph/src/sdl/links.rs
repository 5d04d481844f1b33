//! `@link` and its ancestor `@core`: the specifications that a supergraph uses, and the names that they have in it.

use std::collections::HashMap;

use apollo_compiler::{Name, Schema, ast::Value, parser::SourceSpan, schema::Directive};

use crate::errors::ErrorCollector;

/// The specifications that a supergraph links.
pub(crate) struct Links {
    features: Vec<LinkedFeature>,
}

/// One `@link(url:, as:, import:, for:)`.
struct LinkedFeature {
    /// The feature's name: `join` in `https://specs.apollo.dev/join/v0.3`.
    name: String,
    /// The version, such as `0.3`; empty if the URL has none.
    version: String,
    /// The feature's namespace in this schema.
    prefix: String,
    /// The local name of each imported name (`@key`, `FieldSet`).
    imports: HashMap<String, String>,
    /// `SECURITY` or `EXECUTION`: a router that does not know the feature must not serve the schema.
    purpose: Option<String>,
    url: String,
    place: Option<SourceSpan>,
}

/// The supported versions of the join specification.
const JOIN_VERSIONS: [&str; 5] = ["0.1", "0.2", "0.3", "0.4", "0.5"];

/// The features that are implemented, or that require nothing of a router.
const KNOWN: [&str; 11] = [
    "core",
    "link",
    "join",
    "inaccessible",
    "tag",
    "cost",
    "context",
    "authenticated",
    "requiresScopes",
    "policy",
    "cacheTag",
];

/// The namespaces that belong to composition and never reach clients, linked or not.
const MACHINERY: [&str; 14] = [
    "join",
    "link",
    "core",
    "federation",
    "inaccessible",
    "tag",
    "context",
    "connect",
    "source",
    "openfed",
    "authenticated",
    "requiresScopes",
    "policy",
    "cacheTag",
];

impl Links {
    pub(crate) fn read(schema: &Schema, errors: &mut ErrorCollector<'_>) -> Self {
        let mut features = Vec::new();
        for directive in schema.schema_definition.directives.iter() {
            let url_argument = match directive.name.as_str() {
                "core" => "feature",
                _ if directive.specified_argument_by_name("url").is_some() => "url",
                _ => continue,
            };
            let Some(feature) = LinkedFeature::read(directive, url_argument, errors) else {
                continue;
            };
            feature.check(errors);
            features.push(feature);
        }
        Self { features }
    }

    fn feature(&self, name: &str) -> Option<&LinkedFeature> {
        self.features.iter().find(|feature| feature.name == name)
    }

    /// True if the supergraph links the feature.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.feature(name).is_some()
    }

    /// Returns the local name of `@feature__directive`, without the `@`.
    pub(crate) fn directive(&self, feature: &str, directive: &str) -> String {
        let Some(linked) = self.feature(feature) else {
            return namespaced(feature, feature, directive);
        };
        match linked.imports.get(&format!("@{directive}")) {
            Some(name) => name.trim_start_matches('@').to_owned(),
            None => namespaced(&linked.prefix, feature, directive),
        }
    }

    /// True if the supergraph links the feature.
    pub(crate) fn has_feature(&self, feature: &str) -> bool {
        self.feature(feature).is_some()
    }

    /// True if a link imports a directive under this name (without the `@`).
    pub(crate) fn is_imported_directive(&self, name: &str) -> bool {
        let mut imported = self.features.iter().flat_map(|feature| feature.imports.values());
        imported.any(|it| it.strip_prefix('@') == Some(name))
    }

    /// Returns the local name of the type `feature__type`.
    pub(crate) fn type_name(&self, feature: &str, ty: &str) -> String {
        match self.feature(feature) {
            Some(linked) => match linked.imports.get(ty) {
                Some(name) => name.clone(),
                None => format!("{}__{ty}", linked.prefix),
            },
            None => format!("{feature}__{ty}"),
        }
    }

    /// True if the type belongs to composition.
    pub(crate) fn is_machinery_type(&self, name: &str) -> bool {
        let namespace = name.split_once("__").map(|(namespace, _)| namespace);
        namespace.is_some_and(|namespace| MACHINERY.contains(&namespace))
            || self.features.iter().filter(|feature| feature.is_machinery()).any(|feature| {
                namespace == Some(&feature.prefix)
                    || feature.imports.values().any(|imported| imported == name)
            })
    }

    /// True if the directive (named without the `@`) belongs to composition.
    pub(crate) fn is_machinery_directive(&self, name: &str) -> bool {
        let namespace = name.split_once("__").map_or(name, |(namespace, _)| namespace);
        MACHINERY.contains(&namespace)
            || self.features.iter().filter(|feature| feature.is_machinery()).any(|feature| {
                namespace == feature.prefix
                    || feature
                        .imports
                        .values()
                        .any(|imported| imported.strip_prefix('@') == Some(name))
            })
    }

    /// True for the first version of join, with `@join__owner` and value types without `@join__type`.
    pub(crate) fn is_join_v0_1(&self) -> bool {
        self.feature("join").is_some_and(|join| join.version == "0.1")
    }
}

/// Returns the name of a directive in a namespace. A directive named like its feature is the namespace itself: `@link`,
/// `@inaccessible`, `@tag`.
fn namespaced(prefix: &str, feature: &str, directive: &str) -> String {
    if feature == directive { prefix.to_owned() } else { format!("{prefix}__{directive}") }
}

impl LinkedFeature {
    fn read(
        directive: &Directive,
        url_argument: &str,
        errors: &mut ErrorCollector<'_>,
    ) -> Option<Self> {
        let argument = directive.specified_argument_by_name(url_argument)?;
        let place = argument.location();
        let url = argument.as_str()?.to_owned();
        let mut segments =
            url.trim_end_matches('/').rsplit('/').filter(|segment| !segment.is_empty());
        let last = segments.next().unwrap_or_default();
        let version = last.strip_prefix('v').filter(|version| {
            version.starts_with(|first: char| first.is_ascii_digit())
                && version.chars().all(|c| c.is_ascii_digit() || c == '.')
        });
        let (name, version) = match version {
            Some(version) => (segments.next().unwrap_or_default(), version),
            None => (last, ""),
        };
        let text = |name: &str| match directive.specified_argument_by_name(name).map(|v| &**v) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Enum(name)) => Some(name.to_string()),
            _ => None,
        };
        let mut imports = HashMap::new();
        if let Some(Value::List(list)) =
            directive.specified_argument_by_name("import").map(|v| &**v)
        {
            for item in list {
                match &**item {
                    Value::String(name) => {
                        imports.insert(name.clone(), name.clone());
                    }
                    Value::Object(members) => {
                        let member = |wanted: &str| {
                            members
                                .iter()
                                .find(|(name, _)| *name == wanted)
                                .and_then(|(_, value)| value.as_str())
                        };
                        if let Some(name) = member("name") {
                            imports
                                .insert(name.to_owned(), member("as").unwrap_or(name).to_owned());
                        }
                    }
                    _ => errors.push(
                        item.location(),
                        "an import is a string or an object {name, as}",
                        None,
                    ),
                }
            }
        }
        Some(Self {
            prefix: text("as").unwrap_or_else(|| name.to_owned()),
            name: name.to_owned(),
            version: version.to_owned(),
            imports,
            purpose: text("for"),
            url,
            place,
        })
    }

    /// True if the feature's types are hidden from clients. Event directives are an exception: their result type is
    /// part of the API schema.
    fn is_machinery(&self) -> bool {
        !matches!(&*self.name, "edfs" | "events") && !self.prefix.is_empty()
    }

    fn check(&self, errors: &mut ErrorCollector<'_>) {
        if self.name == "join" && !JOIN_VERSIONS.contains(&&*self.version) {
            errors.push(
                self.place,
                format!("version {} of the join specification is not supported", self.version),
                Some("versions 0.1 to 0.5 are read"),
            );
        } else if let Some(purpose) = &self.purpose
            && !KNOWN.contains(&&*self.name)
        {
            errors.push(
                self.place,
                format!(
                    "the schema needs `{}` for {purpose}, which is not supported yet",
                    self.url
                ),
                Some(match purpose.as_str() {
                    "SECURITY" => {
                        "the feature protects fields and types, and the router does not enforce it; composing without it \
                         would expose them to every client: remove what it protects from the supergraph, or protect it in \
                         the subgraphs, before you compose without it"
                    }
                    _ => "serving it without would be wrong; compose without this feature",
                }),
            );
        }
        if !self.prefix.is_empty() && Name::new(&self.prefix).is_err() {
            errors.push(self.place, format!("`{}` is not a namespace", self.prefix), None);
        }
    }
}
