// The names that generated federations use, so that a failing case reads like a schema of a shop or an airline.

export const SUBGRAPHS = [
  "catalog", "orders", "accounts", "reviews", "shipping", "billing", "search", "inventory", "flights", "hotels",
  "payments", "support",
];

export const ENTITIES = [
  "Product", "Order", "Customer", "Review", "Shipment", "Invoice", "Flight", "Booking", "Hotel", "Supplier", "Ticket",
  "Airport", "Passenger", "Playlist", "Song", "Course", "Student", "Teacher", "Recipe", "Vehicle", "Warehouse",
  "Contract", "Payment", "Campaign",
];

export const VALUE_TYPES = [
  "Money", "Size", "Address", "Period", "Location", "Contact", "Discount", "Dimensions", "Allowance", "Score",
];

export const ENUMS = ["State", "Currency", "Colour", "Unit", "Country", "Priority", "Channel", "Season"];

export const ENUM_VALUES = ["FIRST", "SECOND", "THIRD", "OPEN", "CLOSED", "RED", "GREEN", "NORTH", "SOUTH", "OTHER"];

export const INPUTS = ["Filter", "Page", "Range", "Draft", "Choice"];

export const SCALARS = ["Date", "Url", "Json"];

export const INTERFACES = ["Node", "Named", "Priced", "Owned", "Dated"];

export const UNIONS = ["SearchResult", "Item", "Party", "Attachment"];

/** Field names with the type that they usually have. */
export const FIELDS = [
  ["name", "String"], ["title", "String"], ["weight", "Int"], ["price", "Float"], ["rating", "Float"],
  ["isActive", "Boolean"], ["createdAt", "String"], ["description", "String"], ["count", "Int"], ["code", "String"],
  ["position", "Int"], ["language", "String"], ["length", "Int"], ["email", "String"], ["level", "Int"],
  ["comment", "String"], ["width", "Int"], ["height", "Int"], ["tax", "Float"], ["label", "String"],
];

/** Returns the name with that number: the words in turn, then the words with a number. */
export function numbered(words, index) {
  const round = Math.floor(index / words.length);
  const word = words[index % words.length];
  return round === 0 ? word : `${word}${round + 1}`;
}

export function lowerFirst(name) {
  return name[0].toLowerCase() + name.slice(1);
}

export function upperFirst(name) {
  return name[0].toUpperCase() + name.slice(1);
}
