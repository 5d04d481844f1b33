//! Reading of `@cacheControl`, `@cacheTag`, `@openfed__entityCache`, `@openfed__queryCache`,
//! `@openfed__cacheInvalidate` and `@openfed__cachePopulate`. Composition writes them as `@join__directive` on types
//! and fields, with the subgraphs that give them.

use std::collections::HashMap;

use apollo_compiler::{
    Name, Node, Schema,
    ast::Value,
    schema::{Directive, ExtendedType},
};

use super::{directive_arguments as arguments, directive_names::DirectiveNames};
use crate::{
    CACHE_TAGS_MAX, CacheHints, ElementHints, PopulateHint, SubgraphId, Supergraph, TypeId,
    errors::ErrorCollector,
};

/// Reads the hints of `schema`. `None` if it has none. `graphs` are the subgraphs by their value of `join__Graph`.
pub(super) fn read_cache_hints(
    schema: &Schema,
    names: &DirectiveNames,
    graphs: &HashMap<String, SubgraphId>,
    supergraph: &Supergraph,
    errors: &mut ErrorCollector<'_>,
) -> Option<CacheHints> {
    let mut hints = CacheHints::default();
    let mut reader = HintReader { names, graphs, errors };
    for (index, ty) in supergraph.types.iter().enumerate() {
        let id = TypeId(index as u32);
        let Some(definition) = schema.types.get(&*ty.name) else { continue };
        let directives: Vec<&Directive> =
            definition.directives().iter().map(AsRef::as_ref).collect();
        for (subgraph, read) in reader.read_element(&directives, &ty.name) {
            hints.types.insert((subgraph, id), read);
        }
        let fields = match definition {
            ExtendedType::Object(object) => &object.fields,
            ExtendedType::Interface(interface) => &interface.fields,
            _ => continue,
        };
        for (name, field) in fields {
            let Some(id) = supergraph.field_named(id, name) else { continue };
            let directives: Vec<&Directive> = field.directives.iter().map(AsRef::as_ref).collect();
            let coordinate = format!("{}.{name}", ty.name);
            for (subgraph, read) in reader.read_element(&directives, &coordinate) {
                hints.fields.insert((subgraph, id), read);
            }
        }
    }
    Some(hints).filter(|it| *it != CacheHints::default())
}

struct HintReader<'a, 'e, 't> {
    names: &'a DirectiveNames,
    graphs: &'a HashMap<String, SubgraphId>,
    errors: &'e mut ErrorCollector<'t>,
}

impl HintReader<'_, '_, '_> {
    /// Reads the hints of one type or field. `coordinate` names it in errors.
    fn read_element(
        &mut self,
        directives: &[&Directive],
        coordinate: &str,
    ) -> HashMap<SubgraphId, ElementHints> {
        let mut found: HashMap<SubgraphId, ElementHints> = HashMap::new();
        for directive in directives.iter().filter(|it| it.name == self.names.directive.as_str()) {
            let Some((name, _)) = arguments::read_text(directive, "name") else { continue };
            let members = match directive.specified_argument_by_name("args").map(|args| &**args) {
                Some(Value::Object(members)) => members.as_slice(),
                _ => &[],
            };
            let mut read = ElementHints::default();
            match name.trim_start_matches('@') {
                "cacheControl" => {
                    read.control.max_age = self.read_seconds(members, coordinate);
                    read.control.is_private = self.read_scope(members, coordinate);
                    let inherits = member(members, "inheritMaxAge").and_then(|it| it.to_bool());
                    read.control.inherits_max_age = inherits.unwrap_or(false);
                }
                "openfed__entityCache" | "openfed__queryCache" => {
                    read.whole_max_age = self.read_seconds(members, coordinate);
                }
                "openfed__cacheInvalidate" => read.changes_entity = true,
                "openfed__cachePopulate" => {
                    read.changes_entity = true;
                    let max_age = self.read_seconds(members, coordinate);
                    read.populates = Some(PopulateHint { max_age });
                }
                "federation__cacheTag" | "cacheTag" => {
                    read.tags.extend(self.read_format(directive, members, coordinate));
                }
                _ => continue,
            }
            for subgraph in self.read_graphs(directive) {
                let known = found.entry(subgraph).or_default();
                known.control = match read.control == Default::default() {
                    true => known.control,
                    false => read.control,
                };
                known.whole_max_age = read.whole_max_age.or(known.whole_max_age);
                known.changes_entity |= read.changes_entity;
                known.populates = read.populates.or(known.populates);
                known.tags.extend(read.tags.iter().cloned());
                if known.tags.len() > CACHE_TAGS_MAX {
                    known.tags.truncate(CACHE_TAGS_MAX);
                    let message =
                        format!("`{coordinate}` has more than {CACHE_TAGS_MAX} cache tags");
                    let help = "every stored entry has all of them; use fewer";
                    self.errors.push(directive.name.location(), message, Some(help));
                }
            }
        }
        found
    }

    fn read_graphs(&mut self, directive: &Directive) -> Vec<SubgraphId> {
        let graphs = directive.specified_argument_by_name("graphs").and_then(|it| it.as_list());
        let mut found = Vec::new();
        for graph in graphs.unwrap_or_default() {
            let name = match &**graph {
                Value::Enum(name) => name.as_str(),
                Value::String(text) => text,
                _ => continue,
            };
            match self.graphs.get(name) {
                Some(&id) => found.push(id),
                None => self.errors.push(
                    graph.location(),
                    format!("there is no subgraph `{name}`"),
                    Some("subgraphs are the values of the enum join__Graph"),
                ),
            }
        }
        found
    }

    fn read_seconds(&mut self, members: &[(Name, Node<Value>)], coordinate: &str) -> Option<u32> {
        let value = member(members, "maxAge").filter(|it| !it.is_null())?;
        let seconds = match &**value {
            Value::Int(number) => number.as_str().parse().ok(),
            _ => None,
        };
        if seconds.is_none() {
            self.errors.push(
                value.location(),
                format!("`maxAge` of `{coordinate}` is not a number of seconds"),
                Some("write a whole number, 0 or more"),
            );
        }
        seconds
    }

    fn read_scope(&mut self, members: &[(Name, Node<Value>)], coordinate: &str) -> Option<bool> {
        let value = member(members, "scope").filter(|it| !it.is_null())?;
        let scope = match &**value {
            Value::Enum(name) => name.as_str(),
            Value::String(text) => text,
            _ => "",
        };
        match scope {
            "PRIVATE" => return Some(true),
            "PUBLIC" => return Some(false),
            _ => {}
        }
        // Public by mistake would show the data of one client to others.
        self.errors.push(
            value.location(),
            format!("the `scope` of `{coordinate}` is neither PUBLIC nor PRIVATE"),
            Some("write `scope: PRIVATE` for data of one client"),
        );
        None
    }

    fn read_format(
        &mut self,
        directive: &Directive,
        members: &[(Name, Node<Value>)],
        coordinate: &str,
    ) -> Option<Box<str>> {
        let format = member(members, "format").and_then(|it| it.as_str());
        if format.is_none() {
            self.errors.push(
                directive.name.location(),
                format!("a cache tag of `{coordinate}` has no format"),
                Some("write a text, such as `args: {format: \"products\"}`"),
            );
        }
        format.map(Into::into)
    }
}

fn member<'a>(members: &'a [(Name, Node<Value>)], name: &str) -> Option<&'a Node<Value>> {
    members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}
