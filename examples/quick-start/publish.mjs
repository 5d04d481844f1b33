import { connect } from "nats";

const nats = await connect({ servers: "nats://127.0.0.1:4222" });
nats.publish("stock.changed", JSON.stringify({ __typename: "Product", id: "1" }));
await nats.drain();
