//! Hostile input gives findings: no panic, no endless loop. The schemas of `tests/cases` are damaged at random places.

use std::{fs, path::Path};

use compose::{Composition, SubgraphInput};

fn input(name: &str, sdl: String) -> SubgraphInput {
    let (file, url) = (format!("{name}.graphql"), format!("http://{name}/"));
    SubgraphInput { name: name.to_owned(), url, file, sdl, subscription: None }
}

fn fails(subgraphs: &[SubgraphInput]) -> Vec<String> {
    match compose::compose(subgraphs) {
        Composition::Success { .. } => panic!("composition succeeds"),
        Composition::Failure { errors, .. } => {
            errors.iter().map(|it| it.code.name().to_owned()).collect()
        }
    }
}

/// Damages a text: removes, repeats or replaces a piece of it.
fn damage(text: &str, random: &mut fastrand::Rng) -> String {
    let words: Vec<&str> = text.split_inclusive([' ', '\n', '(', '{']).collect();
    let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    for _ in 0..random.usize(1..4) {
        if words.is_empty() {
            break;
        }
        let (at, other) = (random.usize(..words.len()), random.usize(..words.len()));
        match random.u8(..4) {
            0 => _ = words.remove(at),
            1 => words.insert(at, words[other].clone()),
            2 => words[at] = words[other].clone(),
            _ => words.swap(at, other),
        }
    }
    words.concat()
}

#[test]
fn damaged_schemas_never_panic() {
    let mut random = fastrand::Rng::with_seed(18);
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    for case in fs::read_dir(cases).expect("the folder of cases exists") {
        let mut subgraphs = Vec::new();
        for file in fs::read_dir(case.expect("an entry").path()).expect("a folder") {
            let path = file.expect("an entry").path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            if path.extension().is_some_and(|it| it == "graphql") && name != "expected" {
                subgraphs.push(input(&name, fs::read_to_string(&path).expect("a text file")));
            }
        }
        for _ in 0..20 {
            let mut damaged = subgraphs.clone();
            let at = random.usize(..damaged.len());
            damaged[at].sdl = damage(&damaged[at].sdl, &mut random);
            let _ = compose::compose(&damaged);
        }
    }
}

#[test]
fn no_subgraphs_and_empty_schemas_have_no_queries() {
    assert_eq!(fails(&[]), ["NO_QUERIES"]);
    assert_eq!(fails(&[input("a", "type T { id: ID }".into())]), ["NO_QUERIES"]);
}

#[test]
fn names_of_subgraphs_are_unique() {
    let a = input("a", "type Query { a: Int }".into());
    assert_eq!(fails(&[a.clone(), a]), ["INVALID_SUBGRAPH_NAME"]);
}

#[test]
fn deep_nesting_is_refused() {
    let ty = format!("type Query {{ a: {}Int{} }}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(fails(&[input("a", ty)]).contains(&"INVALID_GRAPHQL".to_owned()));
    let key = format!("a {}", "{ a ".repeat(10_000));
    let sdl = format!("type Query {{ a: T }} type T @key(fields: \"{key}\") {{ a: T }}");
    assert_eq!(fails(&[input("a", sdl)]), ["KEY_INVALID_FIELDS"]);
}

#[test]
fn cycles_of_provided_and_required_fields_end() {
    let a = "
        extend schema @link(url: \"https://specs.apollo.dev/federation/v2.7\", import: [\"@key\", \"@external\", \"@provides\", \"@requires\"])
        type Query { users: [User] @provides(fields: \"friend { name }\") }
        type User @key(fields: \"id\") {
          id: ID!
          friend: User @provides(fields: \"name\")
          name: String @external
          b: Int @external
          a: Int @requires(fields: \"b\")
        }";
    let b = "
        extend schema @link(url: \"https://specs.apollo.dev/federation/v2.7\", import: [\"@key\", \"@external\", \"@requires\", \"@shareable\"])
        type User @key(fields: \"id\") {
          id: ID!
          name: String @shareable
          a: Int @external
          b: Int @requires(fields: \"a\")
        }";
    let errors = fails(&[input("a", a.to_owned()), input("b", b.to_owned())]);
    assert_eq!(errors, ["SATISFIABILITY_ERROR"; 2]);
}

/// Each field requires both fields of the next pair, in the other subgraph: a tree of 2^60 requirements.
#[test]
fn requirements_that_double_at_each_level_end() {
    let levels = 60;
    let schema = |own: usize| {
        let mut fields = String::new();
        for level in 0..levels {
            for name in ["f", "g"] {
                let next = level + 1;
                let directive = match level % 2 == own {
                    false => "@external".to_owned(),
                    true if next == levels => String::new(),
                    true => format!("@requires(fields: \"f{next} g{next}\")"),
                };
                // The first pair is required by nothing, so only its subgraph has it.
                if level > 0 || own == 0 {
                    fields += &format!("{name}{level}: Int {directive}\n");
                }
            }
        }
        format!(
            "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.7\", import: [\"@key\", \"@external\", \
             \"@requires\"])\ntype Query {{ t{own}: T }}\ntype T @key(fields: \"id\") {{ id: ID!\n{fields} }}"
        )
    };
    let result = compose::compose(&[input("a", schema(0)), input("b", schema(1))]);
    assert!(matches!(result, Composition::Success { .. }), "{result:?}");
}

#[test]
fn a_schema_of_one_megabyte_is_composed() {
    let mut sdl = "type Query { a: Int }\n".to_owned();
    let mut number = 0;
    while sdl.len() < 1 << 20 {
        number += 1;
        sdl += &format!("type T{number} {{ a: Int b: [String!] c(d: ID): T{number} }}\n");
    }
    let result = compose::compose(&[input("a", sdl)]);
    assert!(matches!(result, Composition::Success { .. }));
}

#[test]
fn long_texts_without_graphql_are_refused_early() {
    for piece in ["{", "\"", "}", "type", "a ", "#\n{ "] {
        let sdl = piece.repeat((2 << 20) / piece.len());
        assert!(!fails(&[input("a", sdl)]).is_empty(), "{piece}");
    }
    // Errors behind a long valid part are found, too.
    let types: String = (0..20_000).map(|it| format!("type T{it} {{ a: Int b: Int }}\n")).collect();
    let sdl = format!("type Query {{ a: Int }}\n{types}type {{");
    assert!(fails(&[input("a", sdl)]).iter().all(|code| code == "INVALID_GRAPHQL"));
    let sdl = format!("type Query {{ a: Int }}\n{types}");
    assert!(matches!(compose::compose(&[input("a", sdl)]), Composition::Success { .. }));
}

/// A search for a similar name among all types, for each of 20,000 errors, would take minutes.
#[test]
fn thousands_of_unknown_types_are_reported_soon() {
    let types: String =
        (0..20_000).map(|it| format!("type Product{it} {{ a: Produkt{it} }}\n")).collect();
    let sdl = format!("type Query {{ a: Int }}\n{types}");
    assert!(fails(&[input("a", sdl)]).iter().all(|code| code == "INVALID_GRAPHQL"));
}

/// Each error repeats a part of the field set: 500 times 1 MiB would be too much.
#[test]
fn errors_in_a_long_field_set_are_short() {
    let fields: String = (0..1_000).map(|it| format!("f{it} ")).collect();
    let comment = "x".repeat(1 << 20);
    let sdl = format!(
        "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.7\", import: [\"@key\"])\n\
         type Query {{ t: T }}\ntype T @key(fields: \"\"\"{fields}\n# {comment}\n\"\"\") {{ id: ID! }}"
    );
    let Composition::Failure { errors, .. } = compose::compose(&[input("a", sdl)]) else {
        panic!("composition succeeds");
    };
    assert!(errors.len() > 100 && errors.iter().all(|it| it.message.len() < 1_000));
}
