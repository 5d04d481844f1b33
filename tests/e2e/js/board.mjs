// The graph of the suites: flights and airports in two subgraphs that graphql-js serves (deliberately an independent
// implementation), and events about flights in a third subgraph without a server.
import { once } from "node:events";
import http from "node:http";
import { buildSchema, graphql } from "graphql";
import { JOIN_DEFINITIONS } from "./join_definitions.mjs";

const AIRPORTS = new Map([
  ["HAM", { name: "Helmut Schmidt", city: "Hamburg" }],
  ["LIS", { name: "Humberto Delgado", city: "Lisbon" }],
  ["OSL", { name: "Gardermoen", city: "Oslo" }],
]);

const FLIGHTS = new Map([
  ["1", { number: "ST 101", from: "HAM", to: "LIS" }],
  ["2", { number: "ST 202", from: "LIS", to: "OSL" }],
  ["3", { number: "ST 303", from: "OSL", to: "HAM" }],
]);

/** The result that a subscriber of `SUBSCRIPTION` receives for an event of flight `id` at `altitude`. */
export function expectedFlight(id, altitude) {
  const { number, to } = FLIGHTS.get(id);
  return { id, altitude, number, to: { code: to, city: AIRPORTS.get(to).city } };
}

/** The payload of an event. */
export const event = (id, altitude) => ({ __typename: "Flight", id, altitude });

/** Fields of the event itself, of `flights` and, through it, of `airports`. */
export const SELECTION = "{ id altitude number to { code city } }";
export const SUBSCRIPTION = `subscription Moves { flightMoved ${SELECTION} }`;
export const SUBSCRIPTION_BY_ID =
  `subscription Moves($id: ID!) { flightMovedById(id: $id) ${SELECTION} }`;

/**
 * Starts both subgraphs; `configuration` is for `subgraphs:` of the router. Between `pause()` and `resume()` they
 * respond to nothing.
 */
export async function startSubgraphs() {
  let paused = Promise.resolve();
  let resume = () => {};
  const queries = [];
  const airport = (code) => ({ __typename: "Airport", code, ...AIRPORTS.get(code) });
  const flight = (id) => {
    const known = FLIGHTS.get(id);
    if (!known) return null;
    const { number, from, to } = known;
    return { __typename: "Flight", id, number, from: { code: from }, to: { code: to } };
  };
  const flights = await serve(
    `type Query {
      flights: [Flight!]!
      flight(id: ID!): Flight
      _entities(representations: [_Any!]!): [_Entity]!
    }
    type Flight { id: ID! number: String! from: Airport! to: Airport! }
    type Airport { code: ID! }
    union _Entity = Flight
    scalar _Any`,
    {
      flights: () => [...FLIGHTS.keys()].map(flight),
      flight: ({ id }) => flight(id),
      _entities: ({ representations }) => representations.map(({ id }) => flight(id)),
    },
    () => paused,
    (query) => queries.push(query),
  );
  const airports = await serve(
    `type Query {
      airports: [Airport!]!
      _entities(representations: [_Any!]!): [_Entity]!
    }
    type Airport { code: ID! name: String! city: String! }
    union _Entity = Airport
    scalar _Any`,
    {
      airports: () => [...AIRPORTS.keys()].map(airport),
      _entities: ({ representations }) => representations.map(({ code }) => airport(code)),
    },
    () => paused,
    (query) => queries.push(query),
  );
  return {
    /** The texts of the operations that both subgraphs got since the last call. */
    takeQueries: () => queries.splice(0),
    pause() {
      paused = new Promise((resolve) => { resume = resolve; });
    },
    resume: () => resume(),
    configuration: { flights: { url: flights.url }, airports: { url: airports.url } },
    async stop() {
      resume();
      await Promise.all([flights.stop(), airports.stop()]);
    },
  };
}

async function serve(sdl, rootValue, paused, record) {
  const schema = buildSchema(sdl);
  const server = http.createServer(async (request, response) => {
    let body = "";
    for await (const part of request.setEncoding("utf8")) body += part;
    await paused();
    const { query, variables, operationName } = JSON.parse(body);
    record(query);
    const result = await graphql({
      schema, rootValue, source: query, variableValues: variables, operationName,
    });
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(result));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}/graphql`,
    async stop() {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}

/** The supergraph with its events at the provider `memory/default`. */
export const memorySupergraph = (subscriptions) =>
  supergraph({
    subscriptions,
    subscribe: (topic) =>
      `@join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["${topic}"], providerId: "memory/default"})`,
    publish: (topic) =>
      `@join__directive(graphs: [EVENTS], name: "events__publish", args: {topic: "${topic}", providerId: "memory/default"})`,
  });

/** The same with flights that start with their current state. */
export const followedSupergraph = () =>
  memorySupergraph(
    ["ENTITY", "{field: \"flight\"}"].map((initial, at) =>
      `flightFollowed${at}(id: ID!): Flight @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["flights.moved.{{ args.id }}"], providerId: "memory/default", initial: ${initial}})`,
    ).join("\n  "),
  );

/** The supergraph with its events at the NATS provider `default`, with the EDFS directives. */
export const natsSupergraph = () =>
  supergraph({
    subscribe: (subject) =>
      `@join__directive(graphs: [EVENTS], name: "edfs__natsSubscribe", args: {subjects: ["${subject}"], providerId: "default"})`,
    publish: (subject) =>
      `@join__directive(graphs: [EVENTS], name: "edfs__natsPublish", args: {subject: "${subject}", providerId: "default"})`,
  });

/** The same with events from the JetStream stream `FLIGHTS`. */
export const jetStreamSupergraph = () =>
  supergraph({
    subscribe: (subject) =>
      `@join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["${subject}"], providerId: "nats/default", stream: {name: "FLIGHTS"}})`,
    publish: (subject) =>
      `@join__directive(graphs: [EVENTS], name: "events__publish", args: {topic: "${subject}", providerId: "nats/default"})`,
  });

/** The same, where `flightsReplayed` delivers the events that the stream holds when it is opened, and then ends. */
export const boundedSupergraph = () =>
  supergraph({
    subscribe: (subject) =>
      `@join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["${subject}"], providerId: "nats/default", stream: {name: "FLIGHTS"}})`,
    publish: (subject) =>
      `@join__directive(graphs: [EVENTS], name: "events__publish", args: {topic: "${subject}", providerId: "nats/default"})`,
    subscriptions: `flightsReplayed: Flight @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["flights.moved"], providerId: "nats/default", stream: {name: "FLIGHTS"}, start: ALL, until: NOW})`,
  });

/** The same with events in streams of the Redis provider `default`. */
export const redisStreamsSupergraph = () =>
  supergraph({
    subscribe: (key) =>
      `@join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["${key}"], providerId: "redis/default", stream: {}})`,
    publish: (key) =>
      `@join__directive(graphs: [EVENTS], name: "events__publish", args: {topic: "${key}", providerId: "redis/default", stream: {}})`,
  });

/** The same at the Redis provider `default`. */
export const redisSupergraph = () =>
  supergraph({
    subscribe: (channel) =>
      `@join__directive(graphs: [EVENTS], name: "edfs__redisSubscribe", args: {channels: ["${channel}"], providerId: "default"})`,
    publish: (channel) =>
      `@join__directive(graphs: [EVENTS], name: "edfs__redisPublish", args: {channel: "${channel}", providerId: "default"})`,
  });

/**
 * The same at the Kafka provider `default`, with two more fields: `moveFlight` publishes the events of `flightMoved`,
 * and `delayAnnounced` receives the events of `announceDelay`.
 */
export const kafkaSupergraph = () => {
  const subscribe = (topic) =>
    `@join__directive(graphs: [EVENTS], name: "edfs__kafkaSubscribe", args: {topics: ["${topic}"], providerId: "default"})`;
  return supergraph({
    subscribe: (topic) => topic === "flights.moved"
      ? `@join__directive(graphs: [EVENTS], name: "events__subscribe", args: {topics: ["${topic}"], providerId: "kafka/default", key: {field: "id", from: "KEY"}})`
      : subscribe(topic),
    publish: (topic) =>
      `@join__directive(graphs: [EVENTS], name: "edfs__kafkaPublish", args: {topic: "${topic}", providerId: "default"})`,
    mutations: `moveFlight(id: ID!, altitude: Int!): edfs__PublishResult! @join__directive(graphs: [EVENTS], name: "events__publish", args: {topic: "flights.moved", providerId: "kafka/default", key: "{{ args.id }}"})`,
    subscriptions: `delayAnnounced(id: ID!): Delay ${subscribe("flights.delays.{{ args.id }}")}`,
    types: "type Delay @join__type(graph: EVENTS) { id: ID! minutes: Int! }",
  });
};

function supergraph({ subscribe, publish, mutations = "", subscriptions = "", types = "" }) {
  return `schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.4", for: EXECUTION)
{
  query: Query
  mutation: Mutation
  subscription: Subscription
}

${JOIN_DEFINITIONS}
enum join__Graph {
  AIRPORTS @join__graph(name: "airports", url: "http://127.0.0.1:9/airports")
  EVENTS @join__graph(name: "events", url: "")
  FLIGHTS @join__graph(name: "flights", url: "http://127.0.0.1:9/flights")
}

type Query
  @join__type(graph: AIRPORTS)
  @join__type(graph: EVENTS)
  @join__type(graph: FLIGHTS)
{
  airports: [Airport!]! @join__field(graph: AIRPORTS)
  flights: [Flight!]! @join__field(graph: FLIGHTS)
  flight(id: ID!): Flight @join__field(graph: FLIGHTS)
}

type Mutation
  @join__type(graph: EVENTS)
{
  announceDelay(id: ID!, minutes: Int!): edfs__PublishResult! ${publish("flights.delays.{{ args.id }}")}
  ${mutations}
}

type Subscription
  @join__type(graph: EVENTS)
{
  flightMoved: Flight ${subscribe("flights.moved")}
  flightMovedById(id: ID!): Flight ${subscribe("flights.moved.{{ args.id }}")}
  ${subscriptions}
}

${types}

type Flight
  @join__type(graph: EVENTS, key: "id")
  @join__type(graph: FLIGHTS, key: "id")
{
  id: ID!
  altitude: Int @join__field(graph: EVENTS)
  number: String! @join__field(graph: FLIGHTS)
  from: Airport! @join__field(graph: FLIGHTS)
  to: Airport! @join__field(graph: FLIGHTS)
}

type Airport
  @join__type(graph: AIRPORTS, key: "code")
  @join__type(graph: FLIGHTS, key: "code", resolvable: false)
{
  code: ID!
  name: String! @join__field(graph: AIRPORTS)
  city: String! @join__field(graph: AIRPORTS)
}

type edfs__PublishResult
  @join__type(graph: EVENTS)
{
  success: Boolean!
}
`;
}
