//! `@link` in a subgraph: the specifications that it uses, and the names that their directives and types have there.

use std::collections::HashMap;

use apollo_compiler::{
    Name, Node,
    ast::{self, Definition, Value},
    parser::SourceSpan,
};

use crate::{
    code::Code,
    federation_spec::{DIRECTIVES, FederationDirective, FederationVersion, LATEST_MINOR, TYPES},
    finding::{Findings, Severity},
    similar_names::find_similar,
};

/// One `@link(url:, as:, import:, for:)`.
#[derive(Clone, Debug)]
pub(crate) struct LinkedSpec {
    /// The URL as written.
    pub(crate) url: String,
    /// The URL without the version: the identity of the specification.
    pub(crate) identity: String,
    /// The last part of the identity, `federation` in `https://specs.apollo.dev/federation`.
    pub(crate) name: String,
    /// The major and minor version, if the URL has one.
    pub(crate) version: Option<(u32, u32)>,
    /// The namespace in this subgraph.
    pub(crate) namespace: String,
    /// Pairs of the name in the specification and the name in this subgraph; names of directives begin with `@`.
    pub(crate) imports: Vec<(String, String)>,
    pub(crate) purpose: Option<String>,
    pub(crate) place: Option<SourceSpan>,
}

/// The links of one subgraph.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    pub(crate) version: FederationVersion,
    pub(crate) specs: Vec<LinkedSpec>,
    /// The local name of the `@link` directive.
    pub(crate) link_directive: String,
    directives: HashMap<String, FederationDirective>,
    types: HashMap<&'static str, String>,
}

impl LinkedSpec {
    /// Returns the local name of a directive of the specification, without the `@`.
    pub(crate) fn directive(&self, name: &str) -> String {
        let imported = self.imports.iter().find(|(own, _)| own.strip_prefix('@') == Some(name));
        match imported {
            Some((_, local)) => local.trim_start_matches('@').to_owned(),
            None if name == self.name => self.namespace.clone(),
            None => format!("{}__{name}", self.namespace),
        }
    }

    fn type_name(&self, name: &str) -> String {
        let imported = self.imports.iter().find(|(own, _)| own == name);
        imported.map_or_else(|| format!("{}__{name}", self.namespace), |(_, local)| local.clone())
    }

    /// Returns the name in the specification of a local directive, with the `@`.
    pub(crate) fn original_name(&self, local: &str) -> Option<String> {
        let imported = self.imports.iter().find(|(_, name)| name.strip_prefix('@') == Some(local));
        if let Some((own, _)) = imported {
            return Some(own.clone());
        }
        if local == self.namespace {
            return Some(format!("@{}", self.name));
        }
        let name = local.strip_prefix(&self.namespace)?.strip_prefix("__")?;
        Some(format!("@{name}"))
    }
}

impl Links {
    /// Reads the links of `document`. A subgraph that links no federation specification is a Federation 1 subgraph,
    /// except if it `is_event_subgraph`: the event directives came after Federation 2. Returns `None` if a link is
    /// invalid.
    pub(crate) fn read(
        subgraph: usize,
        document: &ast::Document,
        is_event_subgraph: bool,
        findings: &mut Findings<'_>,
    ) -> Option<Self> {
        let before = findings.error_count();
        let applied: Vec<_> = document.definitions.iter().flat_map(schema_directives).collect();
        let is_link_spec = |it: &&&Node<ast::Directive>| {
            url_argument(it).is_some_and(|url| url.contains("specs.apollo.dev/link/"))
        };
        let link_directive = applied
            .iter()
            .find(is_link_spec)
            .map_or_else(|| "link".to_owned(), |it| it.name.to_string());
        let specs: Vec<_> = applied
            .iter()
            .filter(|it| it.name == link_directive.as_str())
            .filter_map(|it| read_link(subgraph, it, findings))
            .collect();
        let mut links = Self {
            version: FederationVersion::One,
            specs,
            link_directive,
            directives: HashMap::new(),
            types: HashMap::new(),
        };
        links.find_version(subgraph, findings);
        links.check_specs(subgraph, findings);
        links.name_directives(is_event_subgraph);
        // The names of directives depend on the links, so further checks would only mislead.
        (findings.error_count() == before).then_some(links)
    }

    fn federation(&self) -> Option<&LinkedSpec> {
        self.specs.iter().find(|spec| spec.name == "federation")
    }

    fn find_version(&mut self, subgraph: usize, findings: &mut Findings<'_>) {
        let Some(federation) = self.federation() else { return };
        self.version = match federation.version {
            Some((2, minor)) if minor <= LATEST_MINOR => FederationVersion::Two(minor),
            _ => {
                findings.error(
                    Code::UNKNOWN_FEDERATION_LINK_VERSION,
                    [(subgraph, federation.place)],
                    format!(
                        "`{}` is not a known version of the federation specification",
                        federation.url
                    ),
                    format!("link one of the versions v2.0 to v2.{LATEST_MINOR}"),
                );
                FederationVersion::Two(LATEST_MINOR)
            }
        };
    }

    fn check_specs(&self, subgraph: usize, findings: &mut Findings<'_>) {
        for spec in &self.specs {
            if spec.name == "federation" {
                self.check_federation_imports(subgraph, spec, findings);
            } else if spec.name == "link" && spec.version.is_some_and(|version| version != (1, 0)) {
                findings.error(
                    Code::UNKNOWN_LINK_VERSION,
                    [(subgraph, spec.place)],
                    format!("`{}` is not a known version of the link specification", spec.url),
                    "link `https://specs.apollo.dev/link/v1.0`",
                );
            } else if let Some(purpose) = &spec.purpose
                && !KNOWN_SPECS.contains(&spec.name.as_str())
            {
                findings.error(
                    Code::UNSUPPORTED_LINKED_FEATURE,
                    [(subgraph, spec.place)],
                    format!("the schema needs `{}` for {purpose}, which composition does not know", spec.url),
                    "remove the argument `for` if the supergraph is correct without the feature, or remove the link",
                );
            }
        }
        self.check_conflicts(subgraph, findings);
    }

    /// Reports specifications that are linked twice, and imports that look like names of another specification.
    fn check_conflicts(&self, subgraph: usize, findings: &mut Findings<'_>) {
        for spec in &self.specs {
            for other in self.specs.iter().filter(|other| other.identity != spec.identity) {
                let is_confusing = |local: &str| {
                    let local = local.trim_start_matches('@');
                    local == other.namespace
                        || local.split_once("__").is_some_and(|(it, _)| it == other.namespace)
                };
                if let Some((_, local)) = spec.imports.iter().find(|(_, it)| is_confusing(it)) {
                    findings.error(
                        Code::INVALID_LINK_DIRECTIVE_USAGE,
                        [(subgraph, spec.place), (subgraph, other.place)],
                        format!(
                            "`{local}` is imported from `{}`, but `{}` has the namespace `{}`",
                            spec.identity, other.identity, other.namespace
                        ),
                        "give the namespace or the import another name with `as`",
                    );
                }
            }
        }
        for spec in &self.specs {
            let since = FederationDirective::named(&spec.name).map(|it| it.spec().since);
            if let (Some(since), FederationVersion::Two(minor)) = (since, self.version)
                && since > minor
            {
                findings.hint(
                    Code::IMPLICITLY_UPGRADED_FEDERATION_VERSION,
                    Severity::Info,
                    [(subgraph, spec.place)],
                    format!("`{}` needs version v2.{since} of the federation specification, and the subgraph links v2.{minor}", spec.url),
                    format!("link `https://specs.apollo.dev/federation/v2.{since}`"),
                );
            }
        }
        for (index, spec) in self.specs.iter().enumerate() {
            if let Some(other) =
                self.specs[..index].iter().find(|other| other.identity == spec.identity)
            {
                findings.error(
                    Code::INVALID_LINK_DIRECTIVE_USAGE,
                    [(subgraph, other.place), (subgraph, spec.place)],
                    format!("`{}` is linked twice", spec.identity),
                    "keep one of the links and put all imports into it",
                );
            }
        }
    }

    fn check_federation_imports(
        &self,
        subgraph: usize,
        spec: &LinkedSpec,
        findings: &mut Findings<'_>,
    ) {
        let FederationVersion::Two(minor) = self.version else { return };
        for (own, _) in &spec.imports {
            let known = match own.strip_prefix('@') {
                Some("link") => continue,
                Some(name) => FederationDirective::named(name).map(|it| it.spec().since),
                None if TYPES.contains(&own.as_str()) => Some(0),
                None => None,
            };
            let place = [(subgraph, spec.place)];
            match known {
                Some(since) if since <= minor => {}
                Some(since) => findings.error(
                    Code::INVALID_LINK_DIRECTIVE_USAGE,
                    place,
                    format!("`{own}` does not exist in version v2.{minor} of the federation specification"),
                    format!("link `https://specs.apollo.dev/federation/v2.{since}` or a later version"),
                ),
                None => {
                    let directive = FederationDirective::named(own).map(|_| own);
                    let known = DIRECTIVES.iter().map(|it| it.name);
                    let advice = match (directive, find_similar(own.trim_start_matches('@'), known)) {
                        (Some(name), _) => format!("names of directives begin with `@`: import `@{name}`"),
                        (None, Some(similar)) => format!("did you mean `@{similar}`?"),
                        (None, None) => "check the spelling against the federation specification".to_owned(),
                    };
                    findings.error(
                        Code::INVALID_LINK_DIRECTIVE_USAGE,
                        place,
                        format!("`{own}` is not part of the federation specification"),
                        advice,
                    );
                }
            }
        }
    }

    fn name_directives(&mut self, is_event_subgraph: bool) {
        if self.version == FederationVersion::One && is_event_subgraph {
            self.version = FederationVersion::Two(LATEST_MINOR);
            for spec in DIRECTIVES {
                self.directives.insert(spec.name.to_owned(), spec.directive);
            }
            self.types = TYPES.iter().map(|&name| (name, format!("federation__{name}"))).collect();
            return;
        }
        let federation = self.federation().cloned();
        match (self.version, &federation) {
            (FederationVersion::Two(minor), Some(federation)) => {
                for spec in DIRECTIVES.iter().filter(|spec| spec.since <= minor) {
                    self.directives.insert(federation.directive(spec.name), spec.directive);
                }
                self.types = TYPES.iter().map(|&name| (name, federation.type_name(name))).collect();
            }
            _ => {
                for spec in DIRECTIVES.iter().filter(|spec| spec.is_in_federation_one) {
                    self.directives.insert(spec.name.to_owned(), spec.directive);
                }
                self.types = TYPES.iter().map(|&name| (name, format!("_{name}"))).collect();
            }
        }
        // Some directives have specifications of their own, which a subgraph may link instead.
        for spec in &self.specs {
            if let Some(directive) = FederationDirective::named(&spec.name) {
                self.directives.insert(spec.directive(&spec.name), directive);
            }
        }
    }

    /// Returns the federation directive with that local name.
    pub(crate) fn directive_named(&self, local: &str) -> Option<FederationDirective> {
        self.directives.get(local).copied()
    }

    /// Returns all federation directives with their local names.
    pub(crate) fn directives(&self) -> impl Iterator<Item = (&str, FederationDirective)> {
        self.directives.iter().map(|(name, directive)| (name.as_str(), *directive))
    }

    /// Returns the local name of a type of the federation specification.
    pub(crate) fn type_name(&self, name: &str) -> &str {
        self.types.get(name).map_or("String", String::as_str)
    }

    /// True if the type belongs to a specification rather than to the graph.
    pub(crate) fn is_machinery_type(&self, name: &str) -> bool {
        if matches!(name, "_Any" | "_Entity" | "_Service" | "_FieldSet" | "FieldSet") {
            return name != "FieldSet" || self.types.values().any(|local| local == name);
        }
        if self.types.values().any(|local| local == name) {
            return true;
        }
        let Some((namespace, _)) = name.split_once("__") else { return false };
        matches!(
            namespace,
            "link" | "core" | "federation" | "join" | "openfed" | "events" | "connect"
        ) || (namespace == "edfs" && name != crate::event_spec::PUBLISH_RESULT)
            || namespace == self.link_directive
            || self.federation().is_some_and(|spec| spec.namespace == namespace)
    }
}

/// The specifications that composition implements, or that need nothing of it.
const KNOWN_SPECS: [&str; 13] = [
    "link",
    "federation",
    "tag",
    "inaccessible",
    "authenticated",
    "requiresScopes",
    "policy",
    "cost",
    "context",
    "cacheTag",
    "join",
    "core",
    "connect",
];

fn schema_directives(definition: &Definition) -> &[Node<ast::Directive>] {
    match definition {
        Definition::SchemaDefinition(it) => &it.directives.0,
        Definition::SchemaExtension(it) => &it.directives.0,
        _ => &[],
    }
}

fn url_argument(directive: &ast::Directive) -> Option<&str> {
    directive.specified_argument_by_name("url")?.as_str()
}

fn read_link(
    subgraph: usize,
    directive: &Node<ast::Directive>,
    findings: &mut Findings<'_>,
) -> Option<LinkedSpec> {
    let place = directive.location();
    let Some(url) = url_argument(directive) else {
        findings.error(
            Code::INVALID_LINK_DIRECTIVE_USAGE,
            [(subgraph, place)],
            "a link has no URL",
            "give it the argument `url`, a string",
        );
        return None;
    };
    let trimmed = url.trim_end_matches('/');
    let (parent, last) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    let version = last.strip_prefix('v').and_then(|version| {
        let (major, minor) = version.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    if version.is_none() {
        findings.error(
            Code::INVALID_LINK_IDENTIFIER,
            [(subgraph, place)],
            format!("the URL `{url}` of a link does not end with a version"),
            "end the URL with a version such as `/v1.0`: it says which directives exist",
        );
    }
    let identity = if version.is_some() { parent } else { trimmed };
    let name = identity.rsplit('/').next().unwrap_or_default().to_owned();
    let text = |argument: &str| match directive.specified_argument_by_name(argument).map(|it| &**it)
    {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Enum(name)) => Some(name.to_string()),
        _ => None,
    };
    let namespace = text("as").unwrap_or_else(|| name.clone());
    let is_name = Name::new(&namespace).is_ok() && !namespace.contains("__");
    if text("as").is_some() && !is_name {
        findings.error(
            Code::INVALID_LINK_IDENTIFIER,
            [(subgraph, place)],
            format!("`{namespace}` cannot be a namespace"),
            "choose a GraphQL name without two underscores in a row",
        );
    }
    let mut refuse = |message: String, advice: &str| {
        findings.error(Code::INVALID_LINK_DIRECTIVE_USAGE, [(subgraph, place)], message, advice);
    };
    let mut imports = Vec::new();
    let list = directive.specified_argument_by_name("import").and_then(|it| it.as_list());
    for item in list.unwrap_or_default() {
        let pair = match &**item {
            Value::String(name) => Some((name.clone(), name.clone())),
            Value::Object(members) => {
                let member = |wanted: &str| {
                    let found = members.iter().find(|(name, _)| *name == wanted);
                    found.and_then(|(_, value)| value.as_str()).map(str::to_owned)
                };
                member("name").map(|name| {
                    let local = member("as").unwrap_or_else(|| name.clone());
                    (name, local)
                })
            }
            _ => None,
        };
        match pair {
            Some((name, local)) if name.starts_with('@') != local.starts_with('@') => refuse(
                format!("`{name}` cannot be imported as `{local}`"),
                "a directive is imported under a name that begins with `@`, a type under one that does not",
            ),
            Some(pair) => imports.push(pair),
            None => refuse(
                format!("`{}` is not an import", item.serialize().no_indent()),
                "an import is a string such as \"@key\" or an object such as {name: \"@key\", as: \"@id\"}",
            ),
        }
    }
    Some(LinkedSpec {
        url: url.to_owned(),
        identity: identity.to_owned(),
        name,
        version,
        namespace,
        imports,
        purpose: text("for"),
        place,
    })
}
