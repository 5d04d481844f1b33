//! The values of placeholders: arguments of a field, from the plan or a JSON object, and claims of a token.

use std::borrow::Cow;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use execute::{ClaimPath, ClaimScalar, ClaimValues};
use plan::{Value, Variables};

/// The maximum nesting of the JSON of an argument.
const DEPTH_MAX: u32 = 64;

/// The path in a placeholder, `args.order.id`: an argument's name and the members below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ArgumentPath {
    pub(crate) argument: Box<str>,
    pub(crate) members: Vec<Box<str>>,
    /// The claim, if the placeholder is `{{ claims.… }}` and not an argument of the field.
    pub(crate) claim: Option<ClaimPath>,
}

impl ArgumentPath {
    /// Parses `args.order.id` or `claims.tenant`. The error shows the expected form.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut names = text.split('.').map(str::trim);
        let hint = || format!("{{{{ {text} }}}} is not understood; write {{{{ args.name }}}}");
        let of_claims = match names.next() {
            Some("args") => false,
            Some("claims") => true,
            _ => return Err(hint()),
        };
        let names: Vec<Box<str>> = names.map(Into::into).collect();
        let is_name = |name: &str| {
            name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
        };
        match names.split_first() {
            Some((argument, members)) if names.iter().all(|name| is_name(name)) => {
                let claim = of_claims.then(|| ClaimPath::new(names.iter().cloned())).flatten();
                Ok(Self { argument: argument.clone(), members: members.to_vec(), claim })
            }
            _ => Err(hint()),
        }
    }
}

impl std::fmt::Display for ArgumentPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(claim) = &self.claim {
            return write!(f, "claims.{claim}");
        }
        f.write_str(&self.argument)?;
        self.members.iter().try_for_each(|member| write!(f, ".{member}"))
    }
}

/// The reason why a value has no text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoTextReason {
    Missing,
    Null,
    List,
    EmptyList,
    NullInList,
    Object,
    Fraction,
    TooDeep,
}

impl NoTextReason {
    /// Returns the reason as a phrase that follows the name of the argument.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "it is not given",
            Self::Null => "it is null",
            Self::List => "it is a list",
            Self::EmptyList => "it is an empty list",
            Self::NullInList => "it contains null",
            Self::Object => "it is an object",
            Self::Fraction => "it is a fractional number",
            Self::TooDeep => "it is nested too deep",
        }
    }
}

/// The arguments of a field.
pub(crate) trait Arguments {
    /// Returns the value at `path` as text, or the reason why it has none.
    fn text(&self, path: &ArgumentPath) -> Result<String, NoTextReason>;

    /// Returns the values at `path` as texts, each element if it is a list.
    fn texts(&self, path: &ArgumentPath) -> Result<Vec<String>, NoTextReason> {
        self.text(path).map(|text| vec![text])
    }

    /// Returns the values at `path` for comparisons: several if it is a list.
    fn scalars(&self, path: &ArgumentPath) -> Result<Vec<Scalar>, Cow<'static, str>>;
}

/// The arguments of a field from the plan.
pub(crate) struct PlannedArguments<'a> {
    pub(crate) arguments: &'a [(Box<str>, Value)],
    pub(crate) variables: &'a Variables,
    /// The claims that the field reads.
    pub(crate) claims: &'a ClaimValues,
}

/// Returns a claim as one text.
fn claim_text(claims: &ClaimValues, path: &ClaimPath) -> Result<String, NoTextReason> {
    match &claim_texts(claims, path)?[..] {
        _ if claims.json(path).is_some_and(|json| json.starts_with('[')) => Err(NoTextReason::List),
        [text] => Ok(text.clone()),
        _ => Err(NoTextReason::Missing),
    }
}

/// Returns a claim as texts, one for each element of a list.
fn claim_texts(claims: &ClaimValues, path: &ClaimPath) -> Result<Vec<String>, NoTextReason> {
    let json = claims.json(path).ok_or(NoTextReason::Missing)?;
    if json == "[]" {
        return Err(NoTextReason::EmptyList);
    }
    let scalars = claims.scalars(path).ok_or(NoTextReason::Object)?;
    let text = |scalar| match scalar {
        ClaimScalar::Number(number) if number.contains(['.', 'e', 'E']) => {
            Err(NoTextReason::Fraction)
        }
        ClaimScalar::Number(text) | ClaimScalar::Text(text) => Ok(text.into()),
        ClaimScalar::Boolean(value) => Ok(value.to_string()),
    };
    scalars.into_iter().map(text).collect()
}

/// Returns the values of a claim for comparisons. A missing claim is an error and not null, so that it never equals
/// anything.
fn claim_scalars(claims: &ClaimValues, path: &ClaimPath) -> Result<Vec<Scalar>, Cow<'static, str>> {
    let scalars = claims.scalars(path).ok_or("there is no such claim")?;
    let scalar = |scalar| match scalar {
        ClaimScalar::Number(text) | ClaimScalar::Text(text) => Scalar::Text(text.into()),
        ClaimScalar::Boolean(value) => Scalar::Text(value.to_string()),
    };
    Ok(scalars.into_iter().map(scalar).collect())
}

impl Arguments for PlannedArguments<'_> {
    fn text(&self, path: &ArgumentPath) -> Result<String, NoTextReason> {
        if let Some(claim) = &path.claim {
            return claim_text(self.claims, claim);
        }
        let mut value = member(self.arguments, &path.argument);
        let mut members = path.members.iter();
        loop {
            return match value {
                None => Err(NoTextReason::Missing),
                Some(Value::Variable(id)) => match self.variables.get(*id) {
                    Some(json) => json_text(json, members.as_slice()),
                    None => Err(NoTextReason::Missing),
                },
                Some(Value::Object(entries)) => match members.next() {
                    Some(name) => {
                        value = member(entries, name);
                        continue;
                    }
                    None => Err(NoTextReason::Object),
                },
                Some(Value::Null) => Err(NoTextReason::Null),
                Some(_) if !members.as_slice().is_empty() => Err(NoTextReason::Missing),
                Some(Value::Int(text) | Value::String(text) | Value::Enum(text)) => {
                    Ok(text.to_string())
                }
                Some(Value::Boolean(value)) => Ok(value.to_string()),
                Some(Value::Float(_)) => Err(NoTextReason::Fraction),
                Some(Value::List(_)) => Err(NoTextReason::List),
            };
        }
    }

    fn texts(&self, path: &ArgumentPath) -> Result<Vec<String>, NoTextReason> {
        if let Some(claim) = &path.claim {
            return claim_texts(self.claims, claim);
        }
        match self.text(path) {
            Err(NoTextReason::List) => {
                let scalars = self.scalars(path).map_err(|_| NoTextReason::Object)?;
                let texts = scalars.into_iter().map(|scalar| match scalar {
                    Scalar::Text(text) => Ok(text),
                    Scalar::Null => Err(NoTextReason::NullInList),
                });
                let texts: Vec<_> = texts.collect::<Result<_, _>>()?;
                if texts.is_empty() { Err(NoTextReason::EmptyList) } else { Ok(texts) }
            }
            other => other.map(|text| vec![text]),
        }
    }

    fn scalars(&self, path: &ArgumentPath) -> Result<Vec<Scalar>, Cow<'static, str>> {
        if let Some(claim) = &path.claim {
            return claim_scalars(self.claims, claim);
        }
        let mut scalars = Vec::new();
        let argument = member(self.arguments, &path.argument);
        self.append(argument, &path.members, &mut scalars)?;
        Ok(scalars)
    }
}

/// A value for comparisons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Scalar {
    /// `null`, or a missing argument.
    Null,
    /// The JSON text without quotes.
    Text(String),
}

impl Scalar {
    /// Returns the text. `None` for null.
    pub(crate) fn text(self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text),
        }
    }
}

impl PlannedArguments<'_> {
    fn append(
        &self,
        value: Option<&Value>,
        members: &[Box<str>],
        out: &mut Vec<Scalar>,
    ) -> Result<(), Cow<'static, str>> {
        match (value, members) {
            (None | Some(Value::Null), _) => out.push(Scalar::Null),
            (Some(Value::Variable(id)), _) => match self.variables.get(*id) {
                Some(json) => append_json(json, members, out)?,
                None => out.push(Scalar::Null),
            },
            (Some(Value::Object(entries)), [name, rest @ ..]) => {
                self.append(member(entries, name), rest, out)?;
            }
            (Some(Value::Object(_)), []) => return Err("it is an object".into()),
            (Some(Value::List(items)), []) => {
                items.iter().try_for_each(|item| self.append(Some(item), &[], out))?;
            }
            (Some(_), [_, ..]) => return Err("it is no object".into()),
            (
                Some(
                    Value::Int(text) | Value::Float(text) | Value::String(text) | Value::Enum(text),
                ),
                [],
            ) => out.push(Scalar::Text(text.to_string())),
            (Some(Value::Boolean(value)), []) => out.push(Scalar::Text(value.to_string())),
        }
        Ok(())
    }
}

fn append_json(
    json: &str,
    members: &[Box<str>],
    out: &mut Vec<Scalar>,
) -> Result<(), Cow<'static, str>> {
    let mut document = Document::with_depth_limit(DEPTH_MAX);
    let node = document
        .parse(Bytes::copy_from_slice(json.as_bytes()))
        .map_err(|_| "it is nested too deep")?;
    append_below(&document, node, members, out)
}

fn append_below(
    document: &Document,
    mut node: NodeId,
    members: &[Box<str>],
    out: &mut Vec<Scalar>,
) -> Result<(), Cow<'static, str>> {
    for name in members {
        match document.kind(node) {
            Kind::Object => match document.get(node, name) {
                Some(value) => node = value,
                None => {
                    out.push(Scalar::Null);
                    return Ok(());
                }
            },
            Kind::Null => break,
            _ => return Err("it is no object".into()),
        }
    }
    append_node(document, node, out)
}

fn append_node(
    document: &Document,
    node: NodeId,
    out: &mut Vec<Scalar>,
) -> Result<(), Cow<'static, str>> {
    match document.kind(node) {
        Kind::Null => out.push(Scalar::Null),
        Kind::String => {
            out.push(Scalar::Text(document.as_str(node).unwrap_or_default().into_owned()));
        }
        Kind::Number | Kind::Bool => out.push(Scalar::Text(document.raw(node).to_owned())),
        Kind::Array => {
            document.elements(node).try_for_each(|item| append_node(document, item, out))?;
        }
        Kind::Object => return Err("it is an object".into()),
    }
    Ok(())
}

fn member<'a>(entries: &'a [(Box<str>, Value)], name: &str) -> Option<&'a Value> {
    entries.iter().find(|(key, _)| &**key == name).map(|(_, value)| value)
}

/// The arguments of a field from one JSON object.
pub(crate) struct JsonArguments {
    document: Document,
    root: NodeId,
    claims: ClaimValues,
}

impl JsonArguments {
    /// Parses `text`. `None` if it is not a JSON object. `claims` are those that the field reads.
    pub(crate) fn parse(text: &Bytes, claims: ClaimValues) -> Option<Self> {
        let mut document = Document::with_depth_limit(DEPTH_MAX);
        let root = document.parse(text.clone()).ok()?;
        (document.kind(root) == Kind::Object).then_some(Self { document, root, claims })
    }
}

impl Arguments for JsonArguments {
    fn text(&self, path: &ArgumentPath) -> Result<String, NoTextReason> {
        if let Some(claim) = &path.claim {
            return claim_text(&self.claims, claim);
        }
        let argument = self.document.get(self.root, &path.argument).ok_or(NoTextReason::Missing)?;
        node_text(&self.document, argument, &path.members)
    }

    fn scalars(&self, path: &ArgumentPath) -> Result<Vec<Scalar>, Cow<'static, str>> {
        if let Some(claim) = &path.claim {
            return claim_scalars(&self.claims, claim);
        }
        let mut scalars = Vec::new();
        match self.document.get(self.root, &path.argument) {
            None => scalars.push(Scalar::Null),
            Some(argument) => {
                append_below(&self.document, argument, &path.members, &mut scalars)?;
            }
        }
        Ok(scalars)
    }
}

fn json_text(json: &str, members: &[Box<str>]) -> Result<String, NoTextReason> {
    let mut document = Document::with_depth_limit(DEPTH_MAX);
    let root = document
        .parse(Bytes::copy_from_slice(json.as_bytes()))
        .map_err(|_| NoTextReason::TooDeep)?;
    node_text(&document, root, members)
}

fn node_text(
    document: &Document,
    mut node: NodeId,
    members: &[Box<str>],
) -> Result<String, NoTextReason> {
    for name in members {
        if document.is_null(node) {
            return Err(NoTextReason::Null);
        }
        node = document.get(node, name).ok_or(NoTextReason::Missing)?;
    }
    match document.kind(node) {
        Kind::String => Ok(document.as_str(node).unwrap_or_default().into_owned()),
        Kind::Number if document.is_integer(node) => Ok(document.raw(node).to_owned()),
        Kind::Number => Err(NoTextReason::Fraction),
        Kind::Bool => Ok(document.raw(node).to_owned()),
        Kind::Null => Err(NoTextReason::Null),
        Kind::Array => Err(NoTextReason::List),
        Kind::Object => Err(NoTextReason::Object),
    }
}

#[cfg(test)]
mod tests {
    use plan::VariableId;

    use super::*;

    #[test]
    fn planned_arguments_render_like_their_json() {
        let variables =
            Variables { values: vec![Some(r#"{"id":"v"}"#.into()), None, Some("\"RED\"".into())] };
        let arguments = [
            ("literal".into(), Value::Object(vec![("id".into(), Value::Int("7".into()))])),
            ("variable".into(), Value::Variable(VariableId(0))),
            ("absent".into(), Value::Variable(VariableId(1))),
            ("colour".into(), Value::Variable(VariableId(2))),
            ("mixed".into(), Value::Object(vec![("in".into(), Value::Variable(VariableId(0)))])),
            ("list".into(), Value::List(vec![])),
        ];
        let planned = PlannedArguments {
            arguments: &arguments,
            variables: &variables,
            claims: &ClaimValues::default(),
        };
        let text = |path: &str| {
            planned.text(&ArgumentPath::parse(path).unwrap()).map_err(NoTextReason::as_str)
        };
        assert_eq!(text("args.literal.id"), Ok("7".into()));
        assert_eq!(text("args.variable.id"), Ok("v".into()));
        assert_eq!(text("args.mixed.in.id"), Ok("v".into()));
        assert_eq!(text("args.colour"), Ok("RED".into()));
        assert_eq!(text("args.absent"), Err("it is not given"));
        assert_eq!(text("args.other"), Err("it is not given"));
        assert_eq!(text("args.literal"), Err("it is an object"));
        assert_eq!(text("args.list"), Err("it is a list"));
        assert_eq!(text("args.literal.id.x"), Err("it is not given"));
    }
}
