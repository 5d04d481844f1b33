import { readFileSync, writeFileSync } from "node:fs";
import { composeServices } from "@theguild/federation-composition";
import { parse } from "graphql";

const subgraph = (name, url, file) => ({ name, url, typeDefs: parse(readFileSync(file, "utf8")) });

const { supergraphSdl, errors } = composeServices([
  subgraph("products", "http://127.0.0.1:4001/", "products.graphql"),
  subgraph("stock", "http://127.0.0.1:4002/", "stock.graphql"),
  subgraph("events", "", "defined-events.graphql"), // no server
]);
if (errors) throw new Error(errors.map((error) => error.message).join("\n"));
writeFileSync("elsewhere.graphql", `${supergraphSdl.trim()}\n`);
