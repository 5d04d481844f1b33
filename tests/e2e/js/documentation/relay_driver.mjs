// An application around the sample of Relay: a subscription as relay-compiler would write it for
// `subscription MovesSubscription { flightMoved { id altitude } }`.
import { pathToFileURL } from "node:url";
import process from "node:process";
import relay from "relay-runtime";

const { environment } = await import(pathToFileURL(process.argv[2]));

const scalar = (name) => ({ alias: null, args: null, kind: "ScalarField", name, storageKey: null });
const selections = [{
  alias: null, args: null, concreteType: "Flight", kind: "LinkedField", name: "flightMoved", plural: false,
  storageKey: null, selections: [scalar("id"), scalar("altitude")],
}];
const subscription = {
  kind: "Request",
  fragment: {
    argumentDefinitions: [], kind: "Fragment", metadata: null, name: "MovesSubscription", selections,
    type: "Subscription", abstractKey: null,
  },
  operation: { argumentDefinitions: [], kind: "Operation", name: "MovesSubscription", selections },
  params: {
    cacheID: "moves", id: null, metadata: {}, name: "MovesSubscription", operationKind: "subscription",
    text: "subscription MovesSubscription { flightMoved { id altitude } }",
  },
};

relay.requestSubscription(environment, {
  subscription,
  variables: {},
  onNext: ({ flightMoved }) => console.log(flightMoved),
  onError: (error) => console.error(error),
});
