//! Shrinker of failing cases: removes every part without which the case still fails in the same way.

use std::collections::{HashMap, HashSet};

use apollo_compiler::Node;
use apollo_compiler::ast::{
    Argument, Definition, Directive, Document, FieldDefinition, FragmentDefinition, InlineFragment,
    OperationDefinition, Selection, Value as Ast,
};
use serde_json::Value;

use crate::{Case, Failure, Variables};

/// The result of shrinking.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smaller case.
    pub case: Case,
    /// The number of runs.
    pub tries: usize,
}

/// Makes `case`, which fails with `failure`, as small as `tries_max` runs allow.
pub fn shrink(case: &Case, failure: &Failure, tries_max: usize) -> Shrunk {
    let mut shrinking =
        Shrinker { case: case.clone(), failure: failure.clone(), tries: 0, tries_max };
    loop {
        let before = shrinking.tries;
        let mut is_smaller = shrinking.operation();
        is_smaller |= shrinking.supergraph();
        is_smaller |= shrinking.data();
        if !is_smaller || shrinking.tries >= tries_max || before == shrinking.tries {
            return Shrunk { case: shrinking.case, tries: shrinking.tries };
        }
    }
}

struct Shrinker {
    case: Case,
    failure: Failure,
    tries: usize,
    tries_max: usize,
}

impl Shrinker {
    /// Keeps the candidate if it fails like the case.
    fn try_case(&mut self, candidate: Case) -> bool {
        if self.tries >= self.tries_max {
            return false;
        }
        self.tries += 1;
        let fails = match candidate.compare() {
            Ok(Err(failure)) => failure.is_like(&self.failure),
            _ => false,
        };
        if fails {
            self.case = candidate;
        }
        fails
    }

    /// Tries edits 0, 1, 2 … of a document until `edit` returns false, which means that there is no such edit.
    fn documents(
        &mut self,
        text: fn(&mut Case) -> &mut String,
        edit: fn(&mut Document, usize) -> bool,
    ) -> bool {
        let mut is_smaller = false;
        let mut at = 0;
        loop {
            let mut candidate = self.case.clone();
            let parsed = Document::parse(text(&mut candidate).clone(), "shrink.graphql");
            let Ok(mut document) = parsed else { return is_smaller };
            if !edit(&mut document, at) {
                return is_smaller;
            }
            *text(&mut candidate) = document.to_string();
            candidate.remove_unknown_variables();
            // If the edit was kept, the following edits have moved up by one.
            match self.try_case(candidate) {
                true => is_smaller = true,
                false => at += 1,
            }
        }
    }

    fn operation(&mut self) -> bool {
        let text: fn(&mut Case) -> &mut String = |case| &mut case.operation;
        let mut is_smaller = self.documents(text, edit_operation);
        for label in self.case.labels.clone() {
            let mut candidate = self.case.clone();
            candidate.labels.retain(|known| *known != label);
            is_smaller |= self.try_case(candidate);
        }
        // The operation grows at first, but then selections that only one place needs can be removed.
        is_smaller | self.documents(text, inline_spread)
    }

    fn supergraph(&mut self) -> bool {
        let text: fn(&mut Case) -> &mut String = |case| &mut case.supergraph;
        let mut is_smaller = self.documents(text, remove_subgraph);
        is_smaller |= self.documents(text, remove_definition);
        is_smaller |= self.documents(text, remove_field);
        is_smaller | self.documents(text, remove_detail)
    }

    fn data(&mut self) -> bool {
        let mut is_smaller = false;
        let names: Vec<String> = self.case.data.objects.keys().cloned().collect();
        for name in names {
            let mut candidate = self.case.clone();
            candidate.data.objects.shift_remove(&name);
            is_smaller |= self.try_case(candidate);
        }
        let places: Vec<(String, String)> = self
            .case
            .data
            .objects
            .iter()
            .flat_map(|(name, fields)| {
                let fields = fields.as_object().into_iter().flatten();
                fields.map(move |(field, _)| (name.clone(), field.clone()))
            })
            .collect();
        for (name, field) in places {
            let mut candidate = self.case.clone();
            if let Some(Value::Object(fields)) = candidate.data.objects.get_mut(&name) {
                fields.shift_remove(&field);
            }
            if self.try_case(candidate) {
                is_smaller = true;
                continue;
            }
            let mut at = 0;
            while let Some(Value::Array(items)) = self.case.data.objects[&name].get(&field)
                && at < items.len()
            {
                let mut candidate = self.case.clone();
                if let Some(Value::Array(items)) =
                    candidate.data.objects.get_mut(&name).and_then(|it| it.get_mut(&field))
                {
                    items.remove(at);
                }
                match self.try_case(candidate) {
                    true => is_smaller = true,
                    false => at += 1,
                }
            }
        }
        is_smaller
    }
}

impl Case {
    fn remove_unknown_variables(&mut self) {
        let Ok(document) = Document::parse(self.operation.clone(), "shrink.graphql") else {
            return;
        };
        let operation = document.definitions.iter().find_map(|it| it.as_operation_definition());
        let Some(operation) = operation else { return };
        let known: HashSet<&str> = operation.variables.iter().map(|it| it.name.as_str()).collect();
        let kept = self.variables.iter().filter(|(name, _)| known.contains(name.as_str()));
        self.variables =
            kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Variables>();
    }
}

/// Applies the edit with number `at` to an operation.
fn edit_operation(document: &mut Document, at: usize) -> bool {
    let mut left = at;
    let mut is_edited = false;
    for definition in &mut document.definitions {
        let set = match definition {
            Definition::OperationDefinition(it) => &mut it.make_mut().selection_set,
            Definition::FragmentDefinition(it) => &mut it.make_mut().selection_set,
            _ => continue,
        };
        if edit_set(set, &mut left) {
            is_edited = true;
            break;
        }
    }
    if is_edited {
        drop_unused(document);
    }
    is_edited
}

/// Replaces the fragment spread with number `at` by the fragment's selections.
fn inline_spread(document: &mut Document, at: usize) -> bool {
    let fragments: HashMap<String, Node<FragmentDefinition>> = document
        .definitions
        .iter()
        .filter_map(|definition| definition.as_fragment_definition())
        .map(|fragment| (fragment.name.to_string(), fragment.clone()))
        .collect();
    let mut left = at;
    let operation = document.definitions.iter_mut().find_map(|definition| match definition {
        Definition::OperationDefinition(it) => Some(it.make_mut()),
        _ => None,
    });
    let is_edited =
        operation.is_some_and(|it| inline_in(&mut it.selection_set, &fragments, &mut left));
    if is_edited {
        drop_unused(document);
    }
    is_edited
}

fn inline_in(
    set: &mut [Selection],
    fragments: &HashMap<String, Node<FragmentDefinition>>,
    left: &mut usize,
) -> bool {
    set.iter_mut().any(|selection| match selection {
        Selection::Field(field) => {
            !field.selection_set.is_empty()
                && inline_in(&mut field.make_mut().selection_set, fragments, left)
        }
        Selection::InlineFragment(fragment) => {
            inline_in(&mut fragment.make_mut().selection_set, fragments, left)
        }
        Selection::FragmentSpread(spread) => {
            let Some(fragment) = fragments.get(spread.fragment_name.as_str()) else { return false };
            if *left > 0 {
                *left -= 1;
                return false;
            }
            *selection = Selection::InlineFragment(Node::new(InlineFragment {
                type_condition: Some(fragment.type_condition.clone()),
                directives: spread.directives.clone(),
                selection_set: fragment.selection_set.clone(),
            }));
            true
        }
    })
}

/// Removes a selection, unwraps a fragment, removes a condition, an alias or an argument.
fn edit_set(set: &mut Vec<Selection>, left: &mut usize) -> bool {
    let mut take = || {
        let is_this = *left == 0;
        *left = left.wrapping_sub(1);
        is_this
    };
    for at in 0..set.len() {
        if take() {
            set.remove(at);
            return true;
        }
        if let Selection::InlineFragment(fragment) = &set[at]
            && take()
        {
            let inner = fragment.selection_set.clone();
            set.splice(at..=at, inner);
            return true;
        }
    }
    for selection in set.iter_mut() {
        match selection {
            Selection::Field(field) => {
                for index in 0..field.directives.len() {
                    if take() {
                        field.make_mut().directives.0.remove(index);
                        return true;
                    }
                }
                for index in 0..field.arguments.len() {
                    if take() {
                        field.make_mut().arguments.remove(index);
                        return true;
                    }
                }
                if field.alias.is_some() && take() {
                    field.make_mut().alias = None;
                    return true;
                }
            }
            Selection::InlineFragment(fragment) => {
                for index in 0..fragment.directives.len() {
                    if take() {
                        fragment.make_mut().directives.0.remove(index);
                        return true;
                    }
                }
            }
            Selection::FragmentSpread(spread) => {
                for index in 0..spread.directives.len() {
                    if take() {
                        spread.make_mut().directives.0.remove(index);
                        return true;
                    }
                }
            }
        }
    }
    for selection in set.iter_mut() {
        let is_edited = match selection {
            Selection::Field(field) if !field.selection_set.is_empty() => {
                edit_set(&mut field.make_mut().selection_set, left)
            }
            Selection::InlineFragment(fragment) => {
                edit_set(&mut fragment.make_mut().selection_set, left)
            }
            _ => false,
        };
        if is_edited {
            return true;
        }
    }
    false
}

/// Removes unused fragments and variables, which would make the document invalid.
fn drop_unused(document: &mut Document) {
    let mut spreads = HashSet::new();
    let mut variables = HashSet::new();
    for definition in &document.definitions {
        match definition {
            Definition::OperationDefinition(it) => {
                used(&it.selection_set, &mut spreads, &mut variables);
            }
            Definition::FragmentDefinition(it) => {
                used(&it.selection_set, &mut spreads, &mut variables);
            }
            _ => {}
        }
    }
    document.definitions.retain(|definition| match definition {
        Definition::FragmentDefinition(it) => spreads.contains(it.name.as_str()),
        _ => true,
    });
    for definition in &mut document.definitions {
        if let Definition::OperationDefinition(operation) = definition {
            let operation: &mut OperationDefinition = operation.make_mut();
            operation.variables.retain(|variable| variables.contains(variable.name.as_str()));
        }
    }
}

fn used(set: &[Selection], spreads: &mut HashSet<String>, variables: &mut HashSet<String>) {
    for selection in set {
        let (directives, arguments, below): (_, &[Node<Argument>], &[Selection]) = match selection {
            Selection::Field(it) => (&it.directives, &it.arguments, &it.selection_set),
            Selection::InlineFragment(it) => (&it.directives, &[], &it.selection_set),
            Selection::FragmentSpread(it) => {
                spreads.insert(it.fragment_name.to_string());
                (&it.directives, &[], &[])
            }
        };
        let conditions = directives.iter().flat_map(|directive| &directive.arguments);
        for argument in conditions.chain(arguments) {
            used_in(&argument.value, variables);
        }
        used(below, spreads, variables);
    }
}

fn used_in(value: &Ast, variables: &mut HashSet<String>) {
    match value {
        Ast::Variable(name) => {
            variables.insert(name.to_string());
        }
        Ast::List(items) => items.iter().for_each(|item| used_in(item, variables)),
        Ast::Object(members) => members.iter().for_each(|(_, value)| used_in(value, variables)),
        _ => {}
    }
}

/// The parts of a type definition.
struct DefinitionParts<'a> {
    directives: Option<&'a mut Vec<Node<Directive>>>,
    fields: Option<&'a mut Vec<Node<FieldDefinition>>>,
}

fn parts(definition: &mut Definition) -> DefinitionParts<'_> {
    match definition {
        Definition::ObjectTypeDefinition(it) => {
            let it = it.make_mut();
            DefinitionParts { directives: Some(&mut it.directives.0), fields: Some(&mut it.fields) }
        }
        Definition::InterfaceTypeDefinition(it) => {
            let it = it.make_mut();
            DefinitionParts { directives: Some(&mut it.directives.0), fields: Some(&mut it.fields) }
        }
        Definition::UnionTypeDefinition(it) => {
            DefinitionParts { directives: Some(&mut it.make_mut().directives.0), fields: None }
        }
        Definition::EnumTypeDefinition(it) => {
            DefinitionParts { directives: Some(&mut it.make_mut().directives.0), fields: None }
        }
        Definition::InputObjectTypeDefinition(it) => {
            DefinitionParts { directives: Some(&mut it.make_mut().directives.0), fields: None }
        }
        Definition::ScalarTypeDefinition(it) => {
            DefinitionParts { directives: Some(&mut it.make_mut().directives.0), fields: None }
        }
        _ => DefinitionParts { directives: None, fields: None },
    }
}

fn names_graph(directive: &Directive, graph: &str) -> bool {
    let value = directive.specified_argument_by_name("graph");
    matches!(value.map(|value| &**value), Some(Ast::Enum(name)) if name == graph)
}

/// Removes a subgraph, and everything that only this subgraph has.
fn remove_subgraph(document: &mut Document, at: usize) -> bool {
    let mut graph = None;
    for definition in &mut document.definitions {
        if let Definition::EnumTypeDefinition(it) = definition
            && it.name == "join__Graph"
            && at < it.values.len()
        {
            graph = Some(it.make_mut().values.remove(at).value.to_string());
        }
    }
    let Some(graph) = graph else { return false };
    document.definitions.retain_mut(|definition| {
        if let Definition::EnumTypeDefinition(it) = definition {
            for value in &mut it.make_mut().values {
                value.make_mut().directives.0.retain(|it| !names_graph(it, &graph));
            }
        }
        if let Definition::ObjectTypeDefinition(it) = definition {
            let it = it.make_mut();
            let gone: Vec<String> = implemented(&it.directives.0, &graph, true);
            it.directives.0.retain(|directive| !names_graph(directive, &graph));
            let kept = implemented(&it.directives.0, &graph, false);
            it.implements_interfaces.retain(|name| {
                !gone.iter().any(|it| *it == **name) || kept.iter().any(|it| *it == **name)
            });
        }
        let parts = parts(definition);
        if let Some(fields) = parts.fields {
            fields.retain_mut(|field| {
                let directives = &mut field.make_mut().directives.0;
                let count = directives.len();
                directives.retain(|directive| !names_graph(directive, &graph));
                // A field without mentions would belong to all subgraphs.
                let is_resolved = directives.iter().any(|directive| {
                    directive.name == "join__field"
                        && directive.specified_argument_by_name("external").is_none()
                });
                count == directives.len() || is_resolved
            });
        }
        let Some(directives) = parts.directives else { return true };
        let count = directives.len();
        directives.retain(|directive| !names_graph(directive, &graph));
        count == directives.len() || directives.iter().any(|it| it.name == "join__type")
    });
    true
}

fn implemented(directives: &[Node<Directive>], graph: &str, is_of_graph: bool) -> Vec<String> {
    directives
        .iter()
        .filter(|it| it.name == "join__implements" && names_graph(it, graph) == is_of_graph)
        .filter_map(|it| it.specified_argument_by_name("interface")?.as_str().map(Into::into))
        .collect()
}

/// Removes a type with all fields that lead to it.
fn remove_definition(document: &mut Document, at: usize) -> bool {
    let removable = |definition: &Definition| {
        let name = definition.name().map_or("", |name| name.as_str());
        !matches!(definition, Definition::SchemaDefinition(_))
            && !matches!(name, "join__Graph" | "Query")
    };
    let places: Vec<usize> = (0..document.definitions.len())
        .filter(|&it| removable(&document.definitions[it]))
        .collect();
    let Some(&place) = places.get(at) else { return false };
    let removed = document.definitions.remove(place);
    let name = removed.name().map(ToString::to_string).unwrap_or_default();
    for definition in &mut document.definitions {
        if let Definition::SchemaDefinition(it) = definition {
            it.make_mut().root_operations.retain(|root| root.1 != name.as_str());
        }
        if let Definition::ObjectTypeDefinition(it) = definition {
            it.make_mut().implements_interfaces.retain(|interface| *interface != name.as_str());
        }
        if let Definition::UnionTypeDefinition(it) = definition {
            it.make_mut().members.retain(|member| *member != name.as_str());
        }
        let parts = parts(definition);
        if let Some(fields) = parts.fields {
            fields.retain(|field| *field.ty.inner_named_type() != name.as_str());
        }
        if let Some(directives) = parts.directives {
            directives.retain(|directive| {
                let mut arguments = directive.arguments.iter();
                !arguments.any(|it| {
                    (it.name == "interface" || it.name == "member")
                        && it.value.as_str() == Some(name.as_str())
                })
            });
        }
    }
    true
}

fn remove_field(document: &mut Document, at: usize) -> bool {
    let mut left = at;
    for definition in &mut document.definitions {
        if let Some(fields) = parts(definition).fields {
            if left < fields.len() {
                fields.remove(left);
                return true;
            }
            left -= fields.len();
        }
    }
    false
}

/// Removes a directive, or an argument of a directive or field.
fn remove_detail(document: &mut Document, at: usize) -> bool {
    let mut left = at;
    for definition in &mut document.definitions {
        let parts = parts(definition);
        if let Some(directives) = parts.directives
            && remove_directive(directives, &mut left)
        {
            return true;
        }
        for field in parts.fields.into_iter().flatten() {
            let field = field.make_mut();
            if remove_directive(&mut field.directives.0, &mut left) {
                return true;
            }
            if left < field.arguments.len() {
                field.arguments.remove(left);
                return true;
            }
            left -= field.arguments.len();
        }
    }
    false
}

fn remove_directive(directives: &mut Vec<Node<Directive>>, left: &mut usize) -> bool {
    if *left < directives.len() {
        directives.remove(*left);
        return true;
    }
    *left -= directives.len();
    for directive in directives {
        // Without `graph` or `external` a mention has another meaning.
        let optional: Vec<usize> = (0..directive.arguments.len())
            .filter(|&index| {
                let name = directive.arguments[index].name.as_str();
                matches!(name, "key" | "requires" | "provides" | "override" | "type" | "resolvable")
            })
            .collect();
        if *left < optional.len() {
            directive.make_mut().arguments.remove(optional[*left]);
            return true;
        }
        *left -= optional.len();
    }
    false
}
