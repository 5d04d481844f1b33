//! The words of made-up texts. None needs an escape in JSON.

pub(super) const GIVEN: &[&str] = &[
    "Ada",
    "Alan",
    "Grace",
    "Linus",
    "Edsger",
    "Barbara",
    "Donald",
    "Frances",
    "Ken",
    "Radia",
    "Dennis",
    "Margaret",
    "Tim",
    "Katherine",
    "John",
    "Hedy",
    "Niklaus",
    "Sophie",
    "Bjarne",
    "Anita",
    "Guido",
    "Joan",
    "Leslie",
    "Mary",
];
pub(super) const FAMILY: &[&str] = &[
    "Lovelace", "Turing", "Hopper", "Torvalds", "Dijkstra", "Liskov", "Knuth", "Allen", "Thompson",
    "Perlman", "Ritchie", "Hamilton", "Lee", "Johnson", "McCarthy", "Lamarr", "Wirth", "Wilson",
    "Borg", "Clarke", "Lamport",
];
pub(super) const ADJECTIVES: &[&str] = &[
    "Quiet", "Bright", "Modern", "Rustic", "Compact", "Gentle", "Swift", "Sturdy", "Classic",
    "Warm", "Light", "Smart", "Northern", "Golden", "Simple", "Grand",
];
pub(super) const THINGS: &[&str] = &[
    "Lamp",
    "Chair",
    "Table",
    "Kettle",
    "Backpack",
    "Bicycle",
    "Notebook",
    "Headphones",
    "Camera",
    "Sofa",
    "Mug",
    "Keyboard",
    "Jacket",
    "Watch",
    "Tent",
    "Shelf",
];
pub(super) const COMPANIES: &[&str] = &[
    "Northwind",
    "Contoso",
    "Acme",
    "Initech",
    "Globex",
    "Umbra",
    "Hooli",
    "Stark",
    "Wayne",
    "Tyrell",
    "Cyberdyne",
    "Aperture",
];
pub(super) const CITIES: &[&str] = &[
    "Lisbon",
    "Oslo",
    "Vienna",
    "Kyoto",
    "Nairobi",
    "Lima",
    "Toronto",
    "Prague",
    "Hanoi",
    "Tallinn",
    "Montevideo",
    "Accra",
    "Wellington",
    "Riga",
];
pub(super) const COUNTRIES: &[&str] =
    &["PT", "NO", "AT", "JP", "KE", "PE", "CA", "CZ", "VN", "EE", "UY", "GH", "NZ", "LV"];
pub(super) const STREETS: &[&str] =
    &["Harbour Street", "Mill Lane", "Station Road", "Park Avenue", "Church Street", "High Street"];
pub(super) const COLOURS: &[&str] =
    &["red", "green", "blue", "black", "white", "yellow", "grey", "orange"];
pub(super) const CURRENCIES: &[&str] = &["EUR", "USD", "GBP", "JPY", "CHF", "SEK"];
pub(super) const LOCALES: &[&str] = &["en", "de", "fr", "ja", "pt", "es", "sv"];
pub(super) const STATUSES: &[&str] = &["active", "pending", "done", "new", "archived"];
pub(super) const WORDS: &[&str] = &[
    "the", "quick", "answer", "comes", "from", "many", "small", "parts", "and", "every", "part",
    "knows", "its", "own", "place", "while", "others", "wait", "for", "a", "sign", "that", "never",
    "was", "given", "twice", "in", "one", "day",
];
