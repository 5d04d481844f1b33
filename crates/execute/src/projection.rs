//! The final pass: walks the response shape and the data tree together, checks values, propagates
//! nulls to the nearest nullable parent (GraphQL specification, section 6.4.4), and prints the
//! response into one buffer.

use std::borrow::Cow;

use astjson::{Document, Kind, NodeId};
use plan::{
    Leaf, ObjectShape, ObjectShapeId, Shape, ShapeField, ValueKind, ValueShape, Variables, Variant,
};

use crate::bounds::PAYLOAD_BYTES_MAX;
use crate::error_list::ErrorList;
use crate::response_layout::ResponseLayout;
use crate::{ErrorCode, GraphqlError, PathSegment};

/// Reason why a value was not printed. The caller must truncate the text that was printed of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PrintStop {
    /// The value is null, and the error is recorded.
    Null,
    /// The response exceeds [`PAYLOAD_BYTES_MAX`].
    TooLarge,
}

/// The constants of printing the objects of a shape, with the same indices.
#[derive(Debug)]
pub(crate) struct CompiledPrinting {
    layout: astjson::Shape,
    objects: Vec<PrintedObject>,
}

#[derive(Debug)]
struct PrintedObject {
    /// The number of these objects in the layout.
    number: usize,
    /// The slot of the `__typename` of the objects. Slots are hints.
    typename_slot: usize,
    /// The fields, by variant.
    variants: Vec<Vec<PrintedField>>,
}

#[derive(Debug)]
struct PrintedField {
    /// The slot of the value.
    slot: usize,
    /// Comma, response key and colon.
    key: Box<[u8]>,
    plain: PlainKind,
}

/// The kind of values that are printed unchanged, for fields that are always shown. Most fields of
/// a response have one.
#[derive(Clone, Copy, Debug)]
enum PlainKind {
    /// Strings are printed unchanged.
    String,
    /// Integers are, if they are short enough to have 32 bits.
    Int,
    /// Numbers are.
    Float,
    /// `true` and `false` are.
    Boolean,
    /// All values need a check.
    No,
}

impl PlainKind {
    fn of(field: &ShapeField) -> Self {
        let is_always_shown = field.any_of.is_empty() && field.unless.is_empty();
        match &field.value.kind {
            ValueKind::Leaf(leaf) if is_always_shown => match leaf {
                Leaf::String | Leaf::Id => Self::String,
                Leaf::Int => Self::Int,
                Leaf::Float => Self::Float,
                Leaf::Boolean => Self::Boolean,
                Leaf::Enum(_) | Leaf::Custom => Self::No,
            },
            _ => Self::No,
        }
    }

    fn prints_unchanged(self, kind: Kind, text: &str) -> bool {
        match self {
            Self::String => kind == Kind::String,
            Self::Int => {
                kind == Kind::Number && text.len() <= SURE_INT_CHARACTERS && is_integer_text(text)
            }
            Self::Float => kind == Kind::Number,
            Self::Boolean => kind == Kind::Bool,
            Self::No => false,
        }
    }
}

/// Number of characters with which an integer always fits 32 bits.
const SURE_INT_CHARACTERS: usize = 9;

impl CompiledPrinting {
    /// Compiles the printing of `shape`.
    pub(crate) fn new(shape: &Shape, layout: &ResponseLayout, slots: astjson::Shape) -> Self {
        let objects = shape.objects.iter().enumerate().map(|(kind, object)| {
            let objects = layout.cursor(Some(kind));
            let field = |field: &ShapeField| PrintedField {
                slot: objects.slot(&field.data_key),
                key: [b",\"", field.response_key.as_bytes(), b"\":"].concat().into(),
                plain: PlainKind::of(field),
            };
            PrintedObject {
                number: objects.number(),
                typename_slot: objects.slot("__typename"),
                variants: object
                    .variants
                    .iter()
                    .map(|variant| variant.fields.iter().map(field).collect())
                    .collect(),
            }
        });
        Self { objects: objects.collect(), layout: slots }
    }
}

/// Prints the value of `data`. `Err(PrintStop::Null)` means that it is null as a whole.
pub(crate) fn print_data(
    document: &Document,
    root: NodeId,
    shape: &Shape,
    printing: &CompiledPrinting,
    variables: &Variables,
    errors: &mut ErrorList,
    out: &mut Vec<u8>,
) -> Result<(), PrintStop> {
    let explained = if errors.explained_all { Explained::Yes } else { Explained::AtRoot };
    let mut projection = ResponsePrinter { document, shape, printing, variables, errors, out };
    projection.print_object(shape.root, root, explained, None)
}

#[derive(Clone, Copy)]
enum PrintedStep<'a> {
    Key(&'a str),
    Index(u32),
}

/// A place in the response, as a list of steps from its end to the root: it is only read if there
/// is an error.
#[derive(Clone, Copy)]
struct PrintedPlace<'p> {
    above: Option<&'p PrintedPlace<'p>>,
    step: PrintedStep<'p>,
}

impl PrintedPlace<'_> {
    fn path(place: Option<&Self>) -> Vec<PathSegment> {
        let steps = std::iter::successors(place, |place| place.above);
        let segment = |place: &PrintedPlace<'_>| match place.step {
            PrintedStep::Key(key) => PathSegment::Key(key.into()),
            PrintedStep::Index(index) => PathSegment::Index(index),
        };
        let mut path: Vec<_> = steps.map(segment).collect();
        path.reverse();
        path
    }
}

/// The explanation of nulls here by the errors recorded so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Explained {
    /// In the root object: its keys are looked up one by one.
    AtRoot,
    No,
    Yes,
}

struct ResponsePrinter<'a, 'r> {
    document: &'a Document,
    shape: &'a Shape,
    printing: &'a CompiledPrinting,
    variables: &'a Variables,
    errors: &'r mut ErrorList,
    out: &'r mut Vec<u8>,
}

impl<'a> ResponsePrinter<'a, '_> {
    // Recursion is bounded by the depth of the operation (limited when it is prepared) and the list
    // nesting of the schema's types: the walk follows the shape, not the data.
    fn print_object(
        &mut self,
        id: ObjectShapeId,
        node: NodeId,
        explained: Explained,
        above: Option<&PrintedPlace<'_>>,
    ) -> Result<(), PrintStop> {
        let index = id.0 as usize;
        let (Some(shape), Some(printed)) =
            (self.shape.objects.get(index), self.printing.objects.get(index))
        else {
            let problem = "the plan has no such shape";
            return Err(self.report_mismatch(above, ErrorCode::InternalServerError, problem));
        };
        let slots = self.document.slots(node, &self.printing.layout, printed.number);
        let explained = match explained {
            Explained::No if self.errors.explained_objects.contains(&node) => Explained::Yes,
            other => other,
        };
        let (variant, printed) = self.choose_variant(shape, printed, node, explained, above)?;
        if variant.is_denied {
            self.errors.push_denied(PrintedPlace::path(above));
            return Err(PrintStop::Null);
        }
        self.out.push(b'{');
        let mut first = true;
        for (index, printed) in printed.iter().enumerate() {
            // Hot path: most fields end here, and only the constants of printing are read.
            if let Some(slots) = slots
                && let Some(value) = slots.get(printed.slot)
            {
                let (kind, text) = self.document.kind_and_raw(value);
                if printed.plain.prints_unchanged(kind, text) {
                    let skipped = usize::from(std::mem::take(&mut first));
                    self.out.extend_from_slice(&printed.key[skipped..]);
                    self.out.extend_from_slice(text.as_bytes());
                    continue;
                }
            }
            // There is one printed field for each.
            let field = &variant.fields[index];
            if !field.is_shown(self.variables) {
                continue;
            }
            let skipped = usize::from(std::mem::take(&mut first));
            self.out.extend_from_slice(&printed.key[skipped..]);
            let explained = match explained {
                Explained::AtRoot if self.errors.explained_keys.contains(&field.data_key) => {
                    Explained::Yes
                }
                Explained::AtRoot => Explained::No,
                other => other,
            };
            let value = match slots {
                Some(slots) => slots.get(printed.slot),
                None => self.document.get(node, &field.data_key),
            };
            let place = PrintedPlace { above, step: PrintedStep::Key(&field.response_key) };
            self.print_value(
                &FieldContext { variant, field, explained },
                &field.value,
                value,
                &place,
            )?;
        }
        self.out.push(b'}');
        if self.out.len() > PAYLOAD_BYTES_MAX { Err(PrintStop::TooLarge) } else { Ok(()) }
    }

    fn choose_variant(
        &mut self,
        shape: &'a ObjectShape,
        printed: &'a PrintedObject,
        node: NodeId,
        explained: Explained,
        place: Option<&PrintedPlace<'_>>,
    ) -> Result<(&'a Variant, &'a [PrintedField]), PrintStop> {
        let mut variants = shape.variants.iter().zip(printed.variants.iter().map(|it| &it[..]));
        if !shape.is_abstract {
            return variants.next().ok_or_else(|| {
                self.report_mismatch(place, ErrorCode::InternalServerError, "the shape is empty")
            });
        }
        let name = self.document.get_near(node, "__typename", printed.typename_slot);
        let variant = name
            .and_then(|name| variants.find(|(it, _)| self.document.str_eq(name, &it.type_name)));
        variant.ok_or_else(|| {
            // The subgraph that knows the type of an interface object has failed, and an error says
            // so.
            if name.is_none() && explained == Explained::Yes {
                return PrintStop::Null;
            }
            let problem = match name.and_then(|name| self.document.as_str(name)) {
                None => format!("an object of type {} came without __typename", shape.type_name),
                Some(name) => format!("\"{name}\" is no object type of {}", shape.type_name),
            };
            self.report_mismatch(place, ErrorCode::InvalidSubgraphValue, problem)
        })
    }

    // Hot path: once for each value of a response; `cargo bench -p execute` measures it.
    fn print_value(
        &mut self,
        at: &FieldContext<'a>,
        shape: &'a ValueShape,
        node: Option<NodeId>,
        place: &PrintedPlace<'_>,
    ) -> Result<(), PrintStop> {
        if matches!(shape.kind, ValueKind::Typename) {
            // A name needs no escapes.
            self.out.push(b'"');
            self.out.extend_from_slice(at.variant.type_name.as_bytes());
            self.out.push(b'"');
            return Ok(());
        }
        if matches!(shape.kind, ValueKind::Denied) {
            self.errors.push_denied(PrintedPlace::path(Some(place)));
            if !shape.nullable {
                return Err(PrintStop::Null);
            }
            self.out.extend_from_slice(b"null");
            return Ok(());
        }
        let mark = self.out.len();
        let document = self.document;
        let value = node.map(|node| (node, document.kind_and_raw(node)));
        let result = match value {
            Some((node, (kind, text))) if kind != Kind::Null => match &shape.kind {
                ValueKind::Leaf(leaf) => self.print_leaf(at, leaf, node, kind, text, place),
                other => self.print_non_null(at, other, node, kind, place),
            },
            _ if shape.nullable => Err(PrintStop::Null),
            _ => Err(self.report_null(at, place)),
        };
        match result {
            Err(PrintStop::Null) if shape.nullable => {
                self.out.truncate(mark);
                self.out.extend_from_slice(b"null");
                Ok(())
            }
            other => other,
        }
    }

    fn print_non_null(
        &mut self,
        at: &FieldContext<'a>,
        shape: &'a ValueKind,
        node: NodeId,
        kind: Kind,
        place: &PrintedPlace<'_>,
    ) -> Result<(), PrintStop> {
        let document = self.document;
        match shape {
            ValueKind::Object(id) => {
                if kind != Kind::Object {
                    return Err(self.report_wrong_kind(at, "an object", node, place));
                }
                self.print_object(*id, node, at.explained, Some(place))
            }
            ValueKind::List(element_shape) => {
                if kind != Kind::Array {
                    return Err(self.report_wrong_kind(at, "a list", node, place));
                }
                self.out.push(b'[');
                for (index, element) in document.elements(node).enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    let place =
                        PrintedPlace { above: Some(place), step: PrintedStep::Index(index as u32) };
                    self.print_value(at, element_shape, Some(element), &place)?;
                }
                self.out.push(b']');
                Ok(())
            }
            // Values that are denied end before.
            ValueKind::Leaf(_) | ValueKind::Typename | ValueKind::Verbatim | ValueKind::Denied => {
                document.print(node, self.out);
                Ok(())
            }
        }
    }

    fn print_leaf(
        &mut self,
        at: &FieldContext<'a>,
        leaf: &Leaf,
        node: NodeId,
        kind: Kind,
        raw: &str,
        place: &PrintedPlace<'_>,
    ) -> Result<(), PrintStop> {
        let document = self.document;
        let expected = match leaf {
            Leaf::Int => {
                if kind == Kind::Number
                    && let Some(text) = int_text(raw)
                {
                    self.out.extend_from_slice(text.as_bytes());
                    return Ok(());
                }
                "an integer of 32 bits"
            }
            Leaf::Float if kind == Kind::Number => return self.print_raw(raw),
            Leaf::Float => "a number",
            Leaf::String if kind == Kind::String => return self.print_raw(raw),
            Leaf::String => "a string",
            Leaf::Boolean if kind == Kind::Bool => return self.print_raw(raw),
            Leaf::Boolean => "a boolean",
            Leaf::Id if kind == Kind::String => return self.print_raw(raw),
            Leaf::Id if kind == Kind::Number && is_integer_text(raw) => {
                self.out.push(b'"');
                self.out.extend_from_slice(raw.as_bytes());
                self.out.push(b'"');
                return Ok(());
            }
            Leaf::Id => "a string or an integer",
            Leaf::Enum(values) => {
                if kind == Kind::String && values.iter().any(|it| document.str_eq(node, it)) {
                    return self.print_raw(raw);
                }
                "a value of its enum"
            }
            Leaf::Custom => {
                document.print(node, self.out);
                return Ok(());
            }
        };
        Err(self.report_wrong_kind(at, expected, node, place))
    }

    /// Prints a scalar unchanged.
    fn print_raw(&mut self, text: &str) -> Result<(), PrintStop> {
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    #[cold]
    fn report_null(&mut self, at: &FieldContext<'_>, place: &PrintedPlace<'_>) -> PrintStop {
        if at.explained != Explained::Yes && !self.error_at_or_below(place) {
            self.push_error(Some(place), ErrorCode::InvalidSubgraphValue, || {
                format!(
                    "Cannot return null for non-nullable field {}.{}.",
                    at.variant.type_name, at.field.field_name
                )
                .into()
            });
        }
        PrintStop::Null
    }

    #[cold]
    fn report_wrong_kind(
        &mut self,
        at: &FieldContext<'_>,
        expected: &str,
        node: NodeId,
        place: &PrintedPlace<'_>,
    ) -> PrintStop {
        // The message contains the kind of the value, not the value, which may be anything.
        let got = match self.document.kind(node) {
            Kind::Null => "null",
            Kind::Bool => "a boolean",
            Kind::Number => "a number that does not fit",
            Kind::String => "a string that does not fit",
            Kind::Array => "a list",
            Kind::Object => "an object",
        };
        let got = match (self.document.kind(node), expected) {
            (Kind::Number, "an integer of 32 bits" | "a string or an integer") => got,
            (Kind::Number, _) => "a number",
            (Kind::String, "a value of its enum") => got,
            (Kind::String, _) => "a string",
            _ => got,
        };
        self.push_error(Some(place), ErrorCode::InvalidSubgraphValue, || {
            format!(
                "Field {}.{} must be {expected}, a subgraph sent {got}.",
                at.variant.type_name, at.field.field_name
            )
            .into()
        });
        PrintStop::Null
    }

    #[cold]
    fn report_mismatch(
        &mut self,
        place: Option<&PrintedPlace<'_>>,
        code: ErrorCode,
        message: impl Into<Cow<'static, str>>,
    ) -> PrintStop {
        self.push_error(place, code, || message.into());
        PrintStop::Null
    }

    fn push_error(
        &mut self,
        place: Option<&PrintedPlace<'_>>,
        code: ErrorCode,
        message: impl FnOnce() -> Cow<'static, str>,
    ) {
        if self.errors.is_full() {
            self.errors.count_left_out();
            return;
        }
        let error = GraphqlError::new(code, message()).at(PrintedPlace::path(place));
        // These errors come last, in the order of the response.
        self.errors.push(u32::MAX, error);
    }

    /// True if an error has been recorded for this place, or for one below it from which a null was
    /// propagated.
    fn error_at_or_below(&self, place: &PrintedPlace<'_>) -> bool {
        let mut kept = self.errors.kept().peekable();
        if kept.peek().is_none() {
            return false;
        }
        let path = PrintedPlace::path(Some(place));
        kept.any(|error| error.path.starts_with(&path))
    }
}

/// The field that is being printed.
#[derive(Clone, Copy)]
struct FieldContext<'a> {
    variant: &'a Variant,
    field: &'a ShapeField,
    explained: Explained,
}

fn is_integer_text(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the text of an `Int`: integers unchanged, `3.0` and `3e0` as `3` (section 3.5.1 allows
/// coercion without loss). `None` if it is no integer of 32 bits.
fn int_text(text: &str) -> Option<Cow<'_, str>> {
    if is_integer_text(text) {
        if text.len() <= SURE_INT_CHARACTERS {
            return Some(Cow::Borrowed(text));
        }
        return text.parse::<i32>().is_ok().then_some(Cow::Borrowed(text));
    }
    let value: f64 = text.parse().ok()?;
    let fits = value.fract() == 0.0 && value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX);
    fits.then(|| Cow::Owned((value as i32).to_string()))
}

#[cfg(test)]
mod tests {
    use super::int_text;

    #[test]
    fn an_int_has_32_bits_and_no_fraction() {
        let cases = [
            ("0", Some("0")),
            ("-0", Some("-0")),
            ("2147483647", Some("2147483647")),
            ("-2147483648", Some("-2147483648")),
            ("2147483648", None),
            ("-2147483649", None),
            ("3.0", Some("3")),
            ("1e3", Some("1000")),
            ("1.5", None),
            ("1e300", None),
            ("99999999999999999999999", None),
        ];
        for (text, expected) in cases {
            assert_eq!(int_text(text).as_deref(), expected, "{text}");
        }
    }
}
