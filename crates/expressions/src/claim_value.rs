//! Claims as values of the language. A claim is kept as JSON text, and is converted when a program reads it.

use std::collections::HashMap;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString,
};
use cel::common::value::Val;

/// The maximum number of values in one claim, itself included. The lists of groups in tokens have a few hundred.
const CLAIM_VALUES_MAX: usize = 4096;

/// The maximum nesting of a claim, that of tokens.
const DEPTH_MAX: u32 = 32;

pub(crate) type BoxedValue = Box<dyn Val>;

/// Converts a claim from its JSON text. `None` if it has too many values.
pub(crate) fn convert(json: &str) -> Option<BoxedValue> {
    // Most claims are texts without escapes.
    if let Some(text) = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))
        && !text.contains('\\')
    {
        return Some(Box::new(CelString::from(text.to_owned())));
    }
    let mut document = Document::with_depth_limit(DEPTH_MAX);
    let root = document.parse(Bytes::copy_from_slice(json.as_bytes())).ok()?;
    Converter { document: &document, left: CLAIM_VALUES_MAX }.convert(root)
}

struct Converter<'a> {
    document: &'a Document,
    /// The number of values that the claim may still have.
    left: usize,
}

impl Converter<'_> {
    fn convert(&mut self, node: NodeId) -> Option<BoxedValue> {
        self.left = self.left.checked_sub(1)?;
        Some(match self.document.kind(node) {
            Kind::Null => Box::new(CelNull),
            Kind::Bool => Box::new(CelBool::from(self.document.raw(node) == "true")),
            Kind::Number => number(self.document.raw(node)),
            Kind::String => {
                let text = self.document.as_str(node).unwrap_or_default();
                Box::new(CelString::from(text.into_owned()))
            }
            Kind::Array => {
                let nodes: Vec<_> = self.document.elements(node).collect();
                let items = nodes.into_iter().map(|item| self.convert(item));
                Box::new(CelList::from(items.collect::<Option<Vec<_>>>()?))
            }
            Kind::Object => {
                let members: Vec<_> = self.document.members(node).collect();
                let mut map: HashMap<CelMapKey<'static>, BoxedValue> = HashMap::new();
                for (name, value) in members {
                    map.insert(CelMapKey::from(name.into_owned()), self.convert(value)?);
                }
                Box::new(CelMap::from(map))
            }
        })
    }
}

/// Converts a number: whole numbers that fit are integers.
fn number(text: &str) -> BoxedValue {
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(whole), _) => Box::new(CelInt::from(whole)),
        (Err(_), Ok(decimal)) => Box::new(CelDouble::from(decimal)),
        // JSON's numbers are valid decimal numbers.
        (Err(_), Err(_)) => Box::new(CelNull),
    }
}
