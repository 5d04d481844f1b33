//! Printing the merged graph as supergraph SDL: join v0.3, v0.4 where directives travel as `@join__directive`, v0.5
//! where labels of `@override` or contexts need it. Definitions are sorted by name, members keep their order.

use std::fmt::Write as _;

use apollo_compiler::{
    Name, Node,
    ast::{DirectiveDefinition, Value},
};
use graph::SubscriptionEndpoint;

use crate::{
    federation_spec::FederationDirective,
    subgraph::model::TypeKind,
    supergraph::{
        GraphEntry, JoinField, JoinType, MergedDirective, MergedField, MergedInput, MergedType,
        SupergraphModel,
    },
};

/// The features of the supergraph that decide about its links and definitions.
#[derive(Default)]
struct UsedFeatures {
    directives: std::collections::BTreeSet<String>,
    has_carried_directives: bool,
    /// True if a union has such a directive, which the join specification does not foresee.
    has_carried_directives_on_unions: bool,
    has_cache_tags: bool,
    has_labels: bool,
    has_contexts: bool,
    has_subscription_endpoints: bool,
}

/// Whether links say that a router must know their feature (`for: SECURITY`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purposes {
    Written,
    Omitted,
}

/// Prints the supergraph.
pub(crate) fn print(supergraph: &SupergraphModel, purposes: Purposes) -> String {
    let used = find_features(supergraph);
    let mut definitions: Vec<(String, String)> = Vec::new();
    add_machinery(supergraph, &used, &mut definitions);
    for (name, definition) in &supergraph.directive_definitions {
        definitions.push((format!("@{name}"), print_directive_definition(definition)));
    }
    for ty in supergraph.types.values() {
        let is_empty_root = ty.kind == TypeKind::Object && ty.fields.is_empty();
        if !is_empty_root {
            definitions.push((ty.name.to_string(), print_type(supergraph, ty)));
        }
    }
    // Upper and lower case sort together, as people read lists.
    definitions.sort_by_cached_key(|(name, _)| (name.to_lowercase(), name.clone()));
    let mut text = print_schema(supergraph, &used, purposes);
    for (_, definition) in definitions {
        text.push('\n');
        text.push_str(&definition);
    }
    text
}

fn find_features(supergraph: &SupergraphModel) -> UsedFeatures {
    let mut used = UsedFeatures::default();
    supergraph.visit_directives(&mut |directive| match &directive.graphs {
        None => _ = used.directives.insert(directive.name.clone()),
        Some(_) => {
            used.has_carried_directives = true;
            used.has_cache_tags |= directive.name == "federation__cacheTag";
        }
    });
    let unions = supergraph.types.values().filter(|ty| ty.kind == TypeKind::Union);
    used.has_carried_directives_on_unions =
        unions.flat_map(|ty| &ty.directives).any(|it| it.graphs.is_some());
    for field in supergraph.types.values().flat_map(|ty| ty.fields.values()) {
        for join in &field.join_fields {
            used.has_labels |= join.override_label.is_some();
            used.has_contexts |= !join.context_arguments.is_empty();
        }
    }
    used.has_contexts |= used.directives.contains("context");
    let has_endpoint = |it: &GraphEntry| {
        it.subscription.as_ref().is_some_and(|it| *it != SubscriptionEndpoint::default())
    };
    used.has_subscription_endpoints = supergraph.graphs.iter().any(has_endpoint);
    used
}

impl UsedFeatures {
    fn join_version(&self) -> &'static str {
        match (self.has_labels || self.has_contexts, self.has_carried_directives) {
            (true, _) => "v0.5",
            (false, true) => "v0.4",
            (false, false) => "v0.3",
        }
    }
}

/// The specification of `@starling__subscription`. Its name is the namespace of the directive.
const SUBSCRIPTION_LINK: &str = "https://starling.example/starling/v1.0";

/// The federation directives that have a specification of their own in the supergraph, with the link's version and
/// purpose.
const LINKED_DIRECTIVES: [(&str, &str, Option<&str>); 8] = [
    ("tag", "v0.3", None),
    ("inaccessible", "v0.2", Some("SECURITY")),
    ("authenticated", "v0.1", Some("SECURITY")),
    ("requiresScopes", "v0.1", Some("SECURITY")),
    ("policy", "v0.1", Some("SECURITY")),
    ("context", "v0.1", Some("SECURITY")),
    ("cost", "v0.1", None),
    ("listSize", "v0.1", None),
];

fn print_schema(supergraph: &SupergraphModel, used: &UsedFeatures, purposes: Purposes) -> String {
    let mut text = String::new();
    print_description(&mut text, supergraph.description.as_deref(), "");
    text.push_str("schema\n  @link(url: \"https://specs.apollo.dev/link/v1.0\")\n");
    // Writing to a string does not fail, here and below.
    let _ = writeln!(
        text,
        "  @link(url: \"https://specs.apollo.dev/join/{}\", for: EXECUTION)",
        used.join_version()
    );
    for (name, version, purpose) in LINKED_DIRECTIVES {
        if !used.directives.contains(name) || name == "listSize" {
            continue;
        }
        let purpose = purpose.filter(|_| purposes == Purposes::Written);
        let purpose = purpose.map(|it| format!(", for: {it}")).unwrap_or_default();
        let mut imports = Vec::new();
        if let Some(local) = supergraph.directive_names.get(name) {
            imports.push(format!("{{name: \"@{name}\", as: \"@{local}\"}}"));
        }
        if name == "cost" && used.directives.contains("listSize") {
            imports.push(print_list_size_import(supergraph));
        }
        let import = match imports.is_empty() {
            true => String::new(),
            false => format!(", import: [{}]", imports.join(", ")),
        };
        let _ = writeln!(
            text,
            "  @link(url: \"https://specs.apollo.dev/{name}/{version}\"{import}{purpose})"
        );
    }
    if used.directives.contains("listSize") && !used.directives.contains("cost") {
        let import = print_list_size_import(supergraph);
        let _ = writeln!(
            text,
            "  @link(url: \"https://specs.apollo.dev/cost/v0.1\", import: [{import}])"
        );
    }
    for link in &supergraph.composed_links {
        let imports: Vec<_> = link
            .imports
            .iter()
            .map(|(own, local)| match own == local {
                true => format!("\"{own}\""),
                false => format!("{{name: \"{own}\", as: \"{local}\"}}"),
            })
            .collect();
        let _ = writeln!(text, "  @link(url: \"{}\", import: [{}])", link.url, imports.join(", "));
    }
    if used.has_cache_tags {
        // Without a purpose: a router without caches serves the graph correctly.
        text.push_str("  @link(url: \"https://specs.apollo.dev/cacheTag/v0.1\")\n");
    }
    if used.has_subscription_endpoints {
        // Without a purpose: a router that does not read the directive uses its own settings. With a link, other tools
        // keep the directive out of the schema that clients see.
        let _ = writeln!(text, "  @link(url: \"{SUBSCRIPTION_LINK}\")");
    }
    for directive in &supergraph.schema_directives {
        let _ = writeln!(text, "  {}", print_directive(supergraph, directive));
    }
    text.push_str("{\n");
    for (operation, name) in
        [("query", "Query"), ("mutation", "Mutation"), ("subscription", "Subscription")]
    {
        if supergraph.types.get(name).is_some_and(|ty| !ty.fields.is_empty()) {
            let _ = writeln!(text, "  {operation}: {name}");
        }
    }
    text.push_str("}\n");
    text
}

fn print_list_size_import(supergraph: &SupergraphModel) -> String {
    match supergraph.directive_names.get("listSize") {
        Some(local) => format!("{{name: \"@listSize\", as: \"@{local}\"}}"),
        None => "\"@listSize\"".to_owned(),
    }
}

/// Adds the definitions of the join and link specifications and of the federation directives in use.
fn add_machinery(
    supergraph: &SupergraphModel,
    used: &UsedFeatures,
    definitions: &mut Vec<(String, String)>,
) {
    let mut add = |name: &str, text: String| definitions.push((name.to_owned(), text));
    let contexts = match used.has_contexts {
        true => ", contextArguments: [join__ContextArgument!]",
        false => "",
    };
    let labels = if used.join_version() == "v0.3" { "" } else { ", overrideLabel: String" };
    add("@link", "directive @link(url: String, as: String, for: link__Purpose, import: [link__Import]) repeatable on SCHEMA\n".to_owned());
    add(
        "@join__enumValue",
        "directive @join__enumValue(graph: join__Graph!) repeatable on ENUM_VALUE\n".to_owned(),
    );
    add(
        "@join__field",
        format!(
            "directive @join__field(graph: join__Graph, requires: join__FieldSet, provides: join__FieldSet, type: String, external: Boolean, override: String, usedOverridden: Boolean{labels}{contexts}) repeatable on FIELD_DEFINITION | INPUT_FIELD_DEFINITION\n"
        ),
    );
    add(
        "@join__graph",
        "directive @join__graph(name: String!, url: String!) on ENUM_VALUE\n".to_owned(),
    );
    add("@join__implements", "directive @join__implements(graph: join__Graph!, interface: String!) repeatable on OBJECT | INTERFACE\n".to_owned());
    add("@join__type", "directive @join__type(graph: join__Graph!, key: join__FieldSet, extension: Boolean! = false, resolvable: Boolean! = true, isInterfaceObject: Boolean! = false) repeatable on OBJECT | INTERFACE | UNION | ENUM | INPUT_OBJECT | SCALAR\n".to_owned());
    add(
        "@join__unionMember",
        "directive @join__unionMember(graph: join__Graph!, member: String!) repeatable on UNION\n"
            .to_owned(),
    );
    add("join__FieldSet", "scalar join__FieldSet\n".to_owned());
    add("link__Import", "scalar link__Import\n".to_owned());
    add("link__Purpose", PURPOSE.to_owned());
    if used.has_carried_directives {
        let union = if used.has_carried_directives_on_unions { " | UNION" } else { "" };
        add(
            "@join__directive",
            format!(
                "directive @join__directive(graphs: [join__Graph!], name: String!, args: join__DirectiveArguments) repeatable on SCHEMA | OBJECT | INTERFACE{union} | FIELD_DEFINITION\n"
            ),
        );
        add("join__DirectiveArguments", "scalar join__DirectiveArguments\n".to_owned());
    }
    if used.has_contexts {
        add("join__ContextArgument", "input join__ContextArgument {\n  name: String!\n  type: String!\n  context: String!\n  selection: join__FieldValue!\n}\n".to_owned());
        add("join__FieldValue", "scalar join__FieldValue\n".to_owned());
        add("context__ContextFieldValue", "scalar context__ContextFieldValue\n".to_owned());
    }
    if used.has_subscription_endpoints {
        add(
            "@starling__subscription",
            "directive @starling__subscription(protocol: String, url: String) on ENUM_VALUE\n"
                .to_owned(),
        );
    }
    add("join__Graph", print_graphs(&supergraph.graphs));
    for (name, ..) in LINKED_DIRECTIVES {
        let Some(directive) = FederationDirective::named(name) else { continue };
        if !used.directives.contains(name) {
            continue;
        }
        let spec = directive.spec();
        let arguments: Vec<_> = spec
            .arguments
            .iter()
            .map(|(argument, ty)| format!("{argument}: {}", ty.replace('$', &format!("{name}__"))))
            .collect();
        let arguments = match arguments.is_empty() {
            true => String::new(),
            false => format!("({})", arguments.join(", ")),
        };
        let repeatable = if spec.is_repeatable { " repeatable" } else { "" };
        let local = supergraph.directive_names.get(name).map_or(name, String::as_str);
        add(
            &format!("@{local}"),
            format!("directive @{local}{arguments}{repeatable} on {}\n", spec.locations),
        );
        match name {
            "requiresScopes" => {
                add("requiresScopes__Scope", "scalar requiresScopes__Scope\n".to_owned());
            }
            "policy" => add("policy__Policy", "scalar policy__Policy\n".to_owned()),
            _ => {}
        }
    }
}

/// Prints the enum of the subgraphs.
fn print_graphs(graphs: &[GraphEntry]) -> String {
    let mut text = "enum join__Graph {\n".to_owned();
    for graph in graphs {
        let _ = write!(
            text,
            "  {} @join__graph(name: {}, url: {})",
            graph.value,
            quote(&graph.name),
            quote(&graph.url)
        );
        if let Some(endpoint) = &graph.subscription {
            let arguments = [("protocol", &endpoint.protocol), ("url", &endpoint.url)];
            let given =
                arguments.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
            let given: Vec<_> =
                given.map(|(name, value)| format!("{name}: {}", quote(value))).collect();
            if !given.is_empty() {
                let _ = write!(text, " @starling__subscription({})", given.join(", "));
            }
        }
        text.push('\n');
    }
    text.push_str("}\n");
    text
}

const PURPOSE: &str = r#"enum link__Purpose {
  """
  `SECURITY` features provide metadata necessary to securely resolve fields.
  """
  SECURITY

  """
  `EXECUTION` features provide metadata necessary for operation execution.
  """
  EXECUTION
}
"#;

fn print_directive_definition(definition: &Node<DirectiveDefinition>) -> String {
    let mut own = (**definition).clone();
    for argument in &mut own.arguments {
        argument.make_mut().directives.0.clear();
    }
    format!("{}\n", own.serialize())
}

fn quote(text: &str) -> String {
    Value::String(text.to_owned()).serialize().no_indent().to_string()
}

fn graph_list(supergraph: &SupergraphModel, graphs: &[usize]) -> String {
    let names: Vec<_> = graphs.iter().map(|&it| graph_value(supergraph, it)).collect();
    names.join(", ")
}

fn graph_value(supergraph: &SupergraphModel, graph: usize) -> &str {
    supergraph.graphs.get(graph).map_or("", |it| it.value.as_str())
}

fn print_type(supergraph: &SupergraphModel, ty: &MergedType) -> String {
    let mut text = String::new();
    print_description(&mut text, ty.description.as_deref(), "");
    let keyword = match ty.kind {
        TypeKind::Scalar => "scalar",
        TypeKind::Object => "type",
        TypeKind::Interface => "interface",
        TypeKind::Union => "union",
        TypeKind::Enum => "enum",
        TypeKind::InputObject => "input",
    };
    let _ = write!(text, "{keyword} {}", ty.name);
    if !ty.implements.is_empty() {
        let names: Vec<_> = ty.implements.keys().map(Name::as_str).collect();
        let _ = write!(text, " implements {}", names.join(" & "));
    }
    text.push('\n');
    // Implementations are listed by subgraph, as the types are.
    for graph in 0..supergraph.graphs.len() {
        for (interface, _) in ty.implements.iter().filter(|(_, graphs)| graphs.contains(&graph)) {
            let graph = graph_value(supergraph, graph);
            let _ =
                writeln!(text, "  @join__implements(graph: {graph}, interface: \"{interface}\")");
        }
    }
    for join in &ty.join_types {
        let _ = writeln!(text, "  {}", print_join_type(supergraph, join));
    }
    for graph in 0..supergraph.graphs.len() {
        for (member, _) in ty.members.iter().filter(|(_, graphs)| graphs.contains(&graph)) {
            let graph = graph_value(supergraph, graph);
            let _ = writeln!(text, "  @join__unionMember(graph: {graph}, member: \"{member}\")");
        }
    }
    for directive in &ty.directives {
        let _ = writeln!(text, "  {}", print_directive(supergraph, directive));
    }
    match ty.kind {
        TypeKind::Scalar => {}
        TypeKind::Union => {
            let names: Vec<_> = ty.members.keys().map(Name::as_str).collect();
            let _ = writeln!(text, " = {}", names.join(" | "));
        }
        _ => {
            text.push_str("{\n");
            print_members(supergraph, ty, &mut text);
            text.push_str("}\n");
        }
    }
    text
}

fn print_members(supergraph: &SupergraphModel, ty: &MergedType, text: &mut String) {
    for (index, field) in ty.fields.values().enumerate() {
        separate(text, index, field.description.is_some());
        print_field(supergraph, field, text);
    }
    for (index, input) in ty.inputs.values().enumerate() {
        separate(text, index, input.description.is_some());
        print_description(text, input.description.as_deref(), "  ");
        let _ = write!(text, "  {}", print_input(supergraph, input));
        text.push('\n');
    }
    for (index, value) in ty.values.values().enumerate() {
        separate(text, index, value.description.is_some());
        print_description(text, value.description.as_deref(), "  ");
        let _ = write!(text, "  {}", value.name);
        for &graph in &value.sources {
            let _ = write!(text, " @join__enumValue(graph: {})", graph_value(supergraph, graph));
        }
        for directive in &value.directives {
            let _ = write!(text, " {}", print_directive(supergraph, directive));
        }
        text.push('\n');
    }
}

/// Writes an empty line before a described member.
fn separate(text: &mut String, index: usize, is_described: bool) {
    if index > 0 && is_described {
        text.push('\n');
    }
}

fn print_field(supergraph: &SupergraphModel, field: &MergedField, text: &mut String) {
    print_description(text, field.description.as_deref(), "  ");
    let _ = write!(text, "  {}", field.name);
    if field.arguments.values().any(|it| it.description.is_some()) {
        text.push_str("(\n");
        for argument in field.arguments.values() {
            print_description(text, argument.description.as_deref(), "    ");
            let _ = writeln!(text, "    {}", print_input(supergraph, argument));
        }
        text.push_str("  )");
    } else if !field.arguments.is_empty() {
        let arguments: Vec<_> =
            field.arguments.values().map(|it| print_input(supergraph, it)).collect();
        let _ = write!(text, "({})", arguments.join(", "));
    }
    let _ = write!(text, ": {}", field.ty);
    for join in &field.join_fields {
        let _ = write!(text, " {}", print_join_field(supergraph, join));
    }
    for directive in &field.directives {
        let _ = write!(text, " {}", print_directive(supergraph, directive));
    }
    text.push('\n');
}

fn print_input(supergraph: &SupergraphModel, input: &MergedInput) -> String {
    let mut text = format!("{}: {}", input.name, input.ty);
    if let Some(default) = &input.default {
        let _ = write!(text, " = {}", default.serialize().no_indent());
    }
    for join in &input.join_fields {
        let _ = write!(text, " {}", print_join_field(supergraph, join));
    }
    for directive in &input.directives {
        let _ = write!(text, " {}", print_directive(supergraph, directive));
    }
    text
}

fn print_join_type(supergraph: &SupergraphModel, join: &JoinType) -> String {
    let mut text = format!("@join__type(graph: {}", graph_value(supergraph, join.graph));
    if let Some(key) = &join.key {
        let _ = write!(text, ", key: {}", quote(key));
    }
    if join.is_extension {
        text.push_str(", extension: true");
    }
    if !join.is_resolvable {
        text.push_str(", resolvable: false");
    }
    if join.is_interface_object {
        text.push_str(", isInterfaceObject: true");
    }
    text.push(')');
    text
}

fn print_join_field(supergraph: &SupergraphModel, join: &JoinField) -> String {
    let mut arguments = Vec::new();
    if let Some(graph) = join.graph {
        arguments.push(format!("graph: {}", graph_value(supergraph, graph)));
    }
    let texts = [("requires", &join.requires), ("provides", &join.provides), ("type", &join.ty)];
    for (name, value) in texts {
        if let Some(value) = value {
            arguments.push(format!("{name}: {}", quote(value)));
        }
    }
    if join.is_external {
        arguments.push("external: true".to_owned());
    }
    if let Some(from) = &join.override_from {
        arguments.push(format!("override: {}", quote(from)));
    }
    if join.is_used_overridden {
        arguments.push("usedOverridden: true".to_owned());
    }
    if let Some(label) = &join.override_label {
        arguments.push(format!("overrideLabel: {}", quote(label)));
    }
    if !join.context_arguments.is_empty() {
        let one = |it: &crate::supergraph::MergedContextArgument| {
            format!(
                "{{context: {}, name: {}, type: {}, selection: {}}}",
                quote(&it.context),
                quote(&it.name),
                quote(&it.ty),
                quote(&it.selection)
            )
        };
        let all: Vec<_> = join.context_arguments.iter().map(one).collect();
        arguments.push(format!("contextArguments: [{}]", all.join(", ")));
    }
    match arguments.is_empty() {
        true => "@join__field".to_owned(),
        false => format!("@join__field({})", arguments.join(", ")),
    }
}

fn print_directive(supergraph: &SupergraphModel, directive: &MergedDirective) -> String {
    let arguments: Vec<_> = directive
        .arguments
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.serialize().no_indent()))
        .collect();
    let arguments = arguments.join(", ");
    match &directive.graphs {
        Some(graphs) => format!(
            "@join__directive(graphs: [{}], name: {}, args: {{{arguments}}})",
            graph_list(supergraph, graphs),
            quote(&directive.name)
        ),
        None => {
            let name = supergraph.directive_names.get(directive.name.as_str());
            let name = name.unwrap_or(&directive.name);
            match arguments.is_empty() {
                true => format!("@{name}"),
                false => format!("@{name}({arguments})"),
            }
        }
    }
}

fn print_description(text: &mut String, description: Option<&str>, indent: &str) {
    let Some(description) = description else { return };
    let _ = writeln!(text, "{indent}\"\"\"");
    for line in description.replace("\"\"\"", "\\\"\"\"").lines() {
        let line = line.trim_end();
        if line.is_empty() {
            text.push('\n');
        } else {
            let _ = writeln!(text, "{indent}{line}");
        }
    }
    let _ = writeln!(text, "{indent}\"\"\"");
}
