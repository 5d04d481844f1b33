//! Reads the text of a request to a subgraph as selections on the types of the supergraph.

use std::collections::HashMap;

use apollo_compiler::ast;
use apollo_compiler::parser::Parser;
use graph::{Supergraph, TypeId};
use plan::{
    Condition, Field, FieldTarget, Fragment, OperationKind, Selection, SelectionSet,
    SubgraphOperation, Value, VariableId,
};

/// The field that subgraphs have for entities.
const ENTITIES: &str = "_entities";

/// The selections of one request.
#[derive(Debug)]
pub(crate) struct FetchSelection {
    /// The selections of the operation's root, without fields for entities.
    pub(crate) root: Option<SelectionSet>,
    /// The selections on entities, by response key. [`SelectionSet::on`] has no meaning: all items are fragments.
    pub(crate) entities: Vec<(Box<str>, SelectionSet)>,
}

impl FetchSelection {
    /// Reads an operation that a plan sends to a subgraph. Parts that the supergraph does not have are left out.
    pub(crate) fn read(graph: &Supergraph, operation: &SubgraphOperation) -> Self {
        let mut read = Self { root: None, entities: Vec::new() };
        // The planner wrote the text, so it is well-formed.
        let Ok(document) = Parser::new().parse_ast(&*operation.text, "fetch.graphql") else {
            return read;
        };
        let mut fragments = HashMap::new();
        let mut selections: &[ast::Selection] = &[];
        for definition in &document.definitions {
            match definition {
                ast::Definition::OperationDefinition(it) => selections = &it.selection_set,
                ast::Definition::FragmentDefinition(it) => {
                    fragments.insert(it.name.as_str(), &**it);
                }
                _ => {}
            }
        }
        let variables = operation.variables.iter();
        let variables = variables.map(|(name, id)| (&**name, *id)).collect();
        let reader = TextReader { graph, fragments, variables };
        for selection in selections {
            if let ast::Selection::Field(field) = selection
                && field.name == ENTITIES
            {
                let key = field.response_name().as_str().into();
                let below = reader.selection_set(graph.query, &field.selection_set);
                read.entities.push((key, below));
            }
        }
        let root = match operation.kind {
            OperationKind::Query => Some(graph.query),
            OperationKind::Mutation => graph.mutation,
            OperationKind::Subscription => graph.subscription,
        };
        read.root = root.map(|root| reader.selection_set(root, selections));
        read
    }
}

struct TextReader<'a> {
    graph: &'a Supergraph,
    fragments: HashMap<&'a str, &'a ast::FragmentDefinition>,
    variables: HashMap<&'a str, VariableId>,
}

impl TextReader<'_> {
    // Recursion is bounded by the depth of the client's operation.
    fn selection_set(&self, on: TypeId, selections: &[ast::Selection]) -> SelectionSet {
        let items = selections.iter().filter_map(|selection| match selection {
            ast::Selection::Field(field) => self.field(on, field).map(Selection::Field),
            ast::Selection::InlineFragment(fragment) => {
                let narrowed = match &fragment.type_condition {
                    Some(name) => self.graph.type_named(name)?,
                    None => on,
                };
                Some(self.fragment(narrowed, &fragment.directives, &fragment.selection_set))
            }
            ast::Selection::FragmentSpread(spread) => {
                let fragment = self.fragments.get(spread.fragment_name.as_str())?;
                let narrowed = self.graph.type_named(&fragment.type_condition)?;
                Some(self.fragment(narrowed, &spread.directives, &fragment.selection_set))
            }
        });
        SelectionSet { on, items: items.collect() }
    }

    fn fragment(
        &self,
        on: TypeId,
        directives: &ast::DirectiveList,
        selections: &[ast::Selection],
    ) -> Selection {
        let condition = self.condition(directives);
        let selection_set = self.selection_set(on, selections);
        Selection::Fragment(Fragment { on, condition, selection_set })
    }

    /// Reads a field. `None` for meta fields and fields that only the subgraph has.
    fn field(&self, on: TypeId, field: &ast::Field) -> Option<Field> {
        let target = self.graph.field_named(on, &field.name)?;
        let ty = self.graph.field(target).ty.named();
        let arguments = field.arguments.iter().filter_map(|argument| {
            Some((argument.name.as_str().into(), self.value(&argument.value)?))
        });
        let is_leaf = field.selection_set.is_empty();
        Some(Field {
            response_key: field.response_name().as_str().into(),
            target: FieldTarget::Field(target),
            arguments: arguments.collect(),
            condition: self.condition(&field.directives),
            selection_set: (!is_leaf).then(|| self.selection_set(ty, &field.selection_set)),
        })
    }

    /// Reads `@skip` and `@include`. A contradiction would only make the estimate larger than needed.
    fn condition(&self, directives: &ast::DirectiveList) -> Condition {
        let mut all = Vec::new();
        for (name, wanted) in [("skip", false), ("include", true)] {
            for directive in directives.get_all(name) {
                let value = directive.specified_argument_by_name("if").map(|it| &**it);
                if let Some(ast::Value::Variable(name)) = value
                    && let Some(&id) = self.variables.get(name.as_str())
                {
                    all.push((id, wanted));
                }
            }
        }
        all.sort_unstable();
        all.dedup();
        Condition { all }
    }

    /// Reads a value. `None` if it contains a variable that is not the client's.
    fn value(&self, value: &ast::Value) -> Option<Value> {
        Some(match value {
            ast::Value::Null => Value::Null,
            ast::Value::Variable(name) => Value::Variable(*self.variables.get(name.as_str())?),
            ast::Value::Int(number) => Value::Int(number.as_str().into()),
            ast::Value::Float(number) => Value::Float(number.as_str().into()),
            ast::Value::String(text) => Value::String(text.as_str().into()),
            ast::Value::Boolean(value) => Value::Boolean(*value),
            ast::Value::Enum(name) => Value::Enum(name.as_str().into()),
            ast::Value::List(elements) => {
                Value::List(elements.iter().map(|it| self.value(it)).collect::<Option<_>>()?)
            }
            ast::Value::Object(members) => {
                let members = members.iter();
                let member =
                    members.map(|(name, it)| Some((name.as_str().into(), self.value(it)?)));
                Value::Object(member.collect::<Option<_>>()?)
            }
        })
    }
}
