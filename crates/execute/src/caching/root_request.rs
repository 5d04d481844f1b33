//! A request for root fields, divided into its fields, so that a request for some of them is put together without
//! reading the text of the operation again.

use plan::{VariableId, Variables};

/// A request for root fields in parts. Its texts are in the form that they have inside of a JSON string.
#[derive(Clone, Debug, Default)]
pub struct RootRequest {
    /// The name of the operation, if it has one.
    name: Option<Box<str>>,
    variables: Vec<DeclaredVariable>,
    fields: Vec<RootField>,
}

/// A variable of the client that the operation declares.
#[derive(Clone, Debug)]
struct DeclaredVariable {
    name: Box<str>,
    id: VariableId,
    /// The declaration, as in `$first:Int`.
    declaration: String,
}

/// A root field: all selections of one response key.
#[derive(Clone, Debug)]
pub struct RootField {
    /// The key of the field in the `data` of responses.
    pub data_key: Box<str>,
    /// The selections, at least one. Each has conditions of its own.
    pub selections: Vec<RootSelection>,
}

/// One selection of a root field.
#[derive(Clone, Debug)]
pub struct RootSelection {
    /// The selection as the text of the operation has it, with its conditions. In a [`RootRequest`] it is escaped.
    pub text: Box<str>,
    /// The variables that `text` contains.
    pub variables: Vec<VariableId>,
    /// The conditions on the field itself: variables with the values that they must have. All must hold.
    pub conditions: Vec<(VariableId, bool)>,
    /// The selection in the form of [`super::KeyedSelection`], with the numbers of the field's variables.
    pub key_text: Box<str>,
}

/// The selections of a field that hold for one request.
pub(super) enum HoldingSelections<'a> {
    All,
    Some(Vec<&'a RootSelection>),
}

impl RootRequest {
    /// Creates a request for `fields`. `variables` are those of the operation, each with its declaration
    /// (`$first:Int`).
    pub fn new(
        name: Option<Box<str>>,
        variables: Vec<(Box<str>, VariableId, Box<str>)>,
        mut fields: Vec<RootField>,
    ) -> Self {
        let declared = |(name, id, declaration): (Box<str>, VariableId, Box<str>)| {
            DeclaredVariable { name, id, declaration: escape(&declaration) }
        };
        for selection in fields.iter_mut().flat_map(|field| &mut field.selections) {
            selection.text = escape(&selection.text).into();
        }
        Self { name, variables: variables.into_iter().map(declared).collect(), fields }
    }

    /// The fields.
    pub fn fields(&self) -> &[RootField] {
        &self.fields
    }

    /// The numbers of the fields with conditions that hold.
    pub(crate) fn wanted(&self, variables: &Variables) -> Vec<u16> {
        // Operations have at most some thousand root fields (`limits.root_fields`).
        let numbers = self.fields.iter().zip(0_u16..);
        let wanted =
            numbers.filter(|(field, _)| field.selections.iter().any(|it| it.holds(variables)));
        wanted.map(|(_, number)| number).collect()
    }

    /// Returns the body of a request for the fields with these numbers.
    pub fn write_body(&self, numbers: &[u16], variables: &Variables) -> Vec<u8> {
        let selections: Vec<&RootSelection> = numbers
            .iter()
            .filter_map(|&number| self.fields.get(usize::from(number)))
            .flat_map(|field| &field.selections)
            .collect();
        let mut ids: Vec<VariableId> =
            selections.iter().flat_map(|it| &it.variables).copied().collect();
        ids.sort_unstable();
        let is_used = |variable: &&DeclaredVariable| ids.binary_search(&variable.id).is_ok();
        let used: Vec<&DeclaredVariable> = self.variables.iter().filter(is_used).collect();
        let mut body = Vec::with_capacity(512);
        body.extend_from_slice(b"{\"query\":\"");
        if self.name.is_some() || !used.is_empty() {
            body.extend_from_slice(b"query");
        }
        if let Some(name) = &self.name {
            body.push(b' ');
            body.extend_from_slice(name.as_bytes());
        }
        if !used.is_empty() {
            for (number, variable) in used.iter().enumerate() {
                body.push(if number == 0 { b'(' } else { b',' });
                body.extend_from_slice(variable.declaration.as_bytes());
            }
            body.push(b')');
        }
        for (number, selection) in selections.iter().enumerate() {
            body.push(if number == 0 { b'{' } else { b' ' });
            body.extend_from_slice(selection.text.as_bytes());
        }
        body.extend_from_slice(b"}\"");
        if let Some(name) = &self.name {
            body.extend_from_slice(b",\"operationName\":");
            astjson::print_string(name, &mut body);
        }
        body.extend_from_slice(b",\"variables\":{");
        let mut separator: &[u8] = b"";
        for variable in used {
            let Some(value) = variables.get(variable.id) else { continue };
            body.extend_from_slice(separator);
            separator = b",";
            astjson::print_string(&variable.name, &mut body);
            body.push(b':');
            body.extend_from_slice(value.as_bytes());
        }
        body.extend_from_slice(b"}}");
        body
    }
}

impl RootField {
    /// The selections with conditions that hold.
    pub(super) fn holding(&self, variables: &Variables) -> HoldingSelections<'_> {
        if self.selections.iter().all(|it| it.holds(variables)) {
            return HoldingSelections::All;
        }
        HoldingSelections::Some(self.selections.iter().filter(|it| it.holds(variables)).collect())
    }
}

impl RootSelection {
    fn holds(&self, variables: &Variables) -> bool {
        self.conditions.iter().all(|&(variable, wanted)| variables.is_true(variable) == wanted)
    }
}

/// Returns a text as it is inside of a JSON string.
fn escape(text: &str) -> String {
    let mut quoted = Vec::with_capacity(text.len() + 2);
    astjson::print_string(text, &mut quoted);
    // Text stays text, between quotation marks.
    String::from_utf8_lossy(&quoted[1..quoted.len() - 1]).into_owned()
}
