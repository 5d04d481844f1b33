//! Guesses the kind of a leaf from the field's name and type: prices look like prices, names like names.

use apollo_compiler::Schema;
use apollo_compiler::schema::ExtendedType;

use super::leaf::{KeyStyle, Leaf, Text};
use crate::subgraph::model::{FieldModel, ObjectType};

/// Returns the rule to make up a field of a leaf type.
pub(super) fn leaf_of(schema: &Schema, object: &ObjectType, field: &FieldModel, key: bool) -> Leaf {
    if let Some(ExtendedType::Enum(definition)) = schema.types.get(&*field.named) {
        return Leaf::Enum(definition.values.keys().map(|name| name.as_str().into()).collect());
    }
    let words = words_of(&field.name);
    if key {
        return match &*field.named {
            "Int" | "Float" => Leaf::Key(KeyStyle::Number),
            "Boolean" => Leaf::Boolean,
            "ID" => Leaf::Key(KeyStyle::NumberText),
            named => Leaf::Key(key_style(named, &words)),
        };
    }
    match &*field.named {
        "ID" => Leaf::Id,
        "Boolean" => Leaf::Boolean,
        "Int" => {
            let (low, high) = bounds(&words);
            Leaf::Int(low as i64, high as i64)
        }
        "Float" => {
            let (low, high) = bounds(&words);
            Leaf::Decimal(low, high)
        }
        "String" => Leaf::Text(text_of(&object.name, &words)),
        scalar => of_scalar(scalar, &object.name, &words),
    }
}

fn of_scalar(scalar: &str, type_name: &str, words: &[String]) -> Leaf {
    let text = |text| Leaf::Text(text);
    let lower = scalar.to_ascii_lowercase();
    let has = |part: &str| lower.contains(part);
    match () {
        () if has("datetime") || has("timestamp") || has("instant") => text(Text::DateTime),
        () if has("date") => text(Text::Date),
        () if has("duration") => text(Text::Duration),
        () if has("time") && !has("zone") => text(Text::Time),
        () if has("uuid") || has("guid") => text(Text::Uuid),
        () if has("url") || has("uri") => text(Text::Url),
        () if has("email") => text(Text::Email),
        () if has("phone") => text(Text::Phone),
        () if has("country") => text(Text::Country),
        () if has("currency") => text(Text::Currency),
        () if has("json") || has("object") || has("map") || lower == "any" => Leaf::Json,
        () if has("decimal") || has("money") => {
            let (low, high) = bounds(words);
            Leaf::DecimalText(low, high)
        }
        () if has("float") || has("double") => {
            let (low, high) = bounds(words);
            Leaf::Decimal(low, high)
        }
        () if has("negative") && !has("non") => Leaf::Int(-1000, -1),
        () if has("int") || has("long") || has("short") || has("byte") || has("number") => {
            let (low, high) = bounds(words);
            Leaf::Int((low as i64).max(1), high as i64)
        }
        () if has("bool") || has("void") => Leaf::Boolean,
        () => text(text_of(type_name, words)),
    }
}

fn key_style(named: &str, words: &[String]) -> KeyStyle {
    let scalar = named.to_ascii_lowercase();
    let has = |word: &str| words.iter().any(|found| found == word);
    if scalar.contains("uuid") || scalar.contains("guid") || has("uuid") || has("guid") {
        KeyStyle::Uuid
    } else if scalar.contains("int") || scalar.contains("long") {
        KeyStyle::Number
    } else if scalar.contains("email") || has("email") {
        KeyStyle::Email
    } else if scalar.contains("url") || scalar.contains("uri") || has("url") {
        KeyStyle::Url
    } else {
        let prefixes = ["sku", "upc", "slug", "isbn", "code", "name", "handle", "username", "key"];
        let prefix = prefixes.into_iter().find(|prefix| has(prefix));
        prefix.map_or(KeyStyle::NumberText, KeyStyle::Prefixed)
    }
}

/// Returns plausible bounds for a number with this name.
fn bounds(words: &[String]) -> (f64, f64) {
    let has = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str()));
    if has(&["price", "cost", "amount", "total", "fee", "balance", "salary", "revenue"]) {
        (5.0, 2000.0)
    } else if has(&["year"]) {
        (1950.0, 2025.0)
    } else if has(&["age"]) {
        (18.0, 90.0)
    } else if has(&["rating", "stars", "score", "grade"]) {
        (1.0, 5.0)
    } else if has(&["lat", "latitude"]) {
        (-90.0, 90.0)
    } else if has(&["lon", "lng", "longitude"]) {
        (-180.0, 180.0)
    } else if has(&["percent", "percentage", "discount", "progress", "humidity"]) {
        (0.0, 100.0)
    } else if has(&["temperature", "celsius"]) {
        (-20.0, 40.0)
    } else if has(&["weight", "height", "width", "length", "depth"]) {
        (1.0, 500.0)
    } else if has(&["duration", "seconds", "millis", "timestamp", "epoch"]) {
        (1.0, 100_000.0)
    } else {
        (0.0, 1000.0)
    }
}

/// Returns the plausible kind of a text with this name in an object of this type.
fn text_of(type_name: &str, words: &[String]) -> Text {
    let last = words.last().map_or("", String::as_str);
    let has = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str()));
    match last {
        "email" | "mail" => return Text::Email,
        "username" | "login" | "handle" | "nickname" => return Text::UserName,
        "firstname" | "givenname" | "forename" => return Text::GivenName,
        "lastname" | "surname" | "familyname" => return Text::FamilyName,
        "fullname" | "displayname" => return Text::PersonName,
        "name" if has(&["first", "given"]) => return Text::GivenName,
        "name" if has(&["last", "family"]) => return Text::FamilyName,
        "name" if has(&["user"]) => return Text::UserName,
        "name" if has(&["company", "organization", "organisation", "brand"]) => {
            return Text::Company;
        }
        "name" if has(&["full", "display", "person", "author", "customer"]) => {
            return Text::PersonName;
        }
        "name" | "title" | "label" => return named_by_type(type_name),
        "at" | "on" if words.len() > 1 => return Text::DateTime,
        "date" | "birthday" => return Text::Date,
        "timestamp" | "datetime" => return Text::DateTime,
        "time" => return Text::DateTime,
        _ => {}
    }
    if has(&[
        "url",
        "uri",
        "link",
        "href",
        "image",
        "avatar",
        "picture",
        "photo",
        "website",
        "thumbnail",
    ]) {
        Text::Url
    } else if has(&[
        "description",
        "body",
        "text",
        "content",
        "comment",
        "summary",
        "bio",
        "message",
        "note",
    ]) {
        Text::Paragraph
    } else if has(&["phone", "mobile", "telephone"]) {
        Text::Phone
    } else if has(&["city", "town"]) {
        Text::City
    } else if has(&["country", "nationality"]) {
        Text::Country
    } else if has(&["street", "address"]) {
        Text::Street
    } else if has(&["zip", "postcode", "postal"]) {
        Text::Postcode
    } else if has(&["color", "colour"]) {
        Text::Colour
    } else if has(&["currency"]) {
        Text::Currency
    } else if has(&["locale", "language", "lang"]) {
        Text::Locale
    } else if has(&["status", "state", "kind", "type"]) {
        Text::Status
    } else if has(&["company", "organization", "organisation", "brand", "vendor", "manufacturer"]) {
        Text::Company
    } else if has(&["author", "owner", "director", "actor"]) {
        Text::PersonName
    } else if has(&["code", "sku", "upc", "isbn", "number", "reference", "token"]) {
        Text::Code
    } else if has(&["uuid", "guid", "id"]) {
        Text::Uuid
    } else {
        Text::Words
    }
}

fn named_by_type(type_name: &str) -> Text {
    let words = words_of(type_name);
    let has = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str()));
    if has(&[
        "user",
        "person",
        "author",
        "customer",
        "employee",
        "actor",
        "director",
        "member",
        "account",
        "contact",
        "passenger",
        "owner",
        "profile",
        "student",
        "teacher",
        "player",
    ]) {
        Text::PersonName
    } else if has(&[
        "company",
        "organization",
        "organisation",
        "brand",
        "vendor",
        "airline",
        "team",
        "publisher",
    ]) {
        Text::Company
    } else if has(&["city", "location", "place", "airport", "region"]) {
        Text::City
    } else {
        Text::ThingName
    }
}

/// Splits a name into words: `createdAt`, `created_at` and `CreatedAt` have two.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut begins = true;
    let mut after_small = false;
    for character in name.chars() {
        if character == '_' {
            begins = true;
            continue;
        }
        // A row of capitals is one word: a capital begins a word only after a small letter.
        let capital = character.is_ascii_uppercase();
        begins |= capital && after_small;
        match words.last_mut() {
            Some(word) if !begins => word.push(character.to_ascii_lowercase()),
            _ => words.push(character.to_ascii_lowercase().to_string()),
        }
        begins = false;
        after_small = !capital;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fall_into_words() {
        for (name, expected) in [
            ("createdAt", "created at"),
            ("created_at", "created at"),
            ("UPC", "upc"),
            ("imageURL", "image url"),
            ("userID", "user id"),
            ("a", "a"),
            ("__x", "x"),
        ] {
            assert_eq!(words_of(name).join(" "), expected, "{name}");
        }
    }
}
