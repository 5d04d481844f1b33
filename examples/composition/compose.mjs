import { readFileSync, writeFileSync } from "node:fs";
import { composeServices } from "@theguild/federation-composition";
import { parse } from "graphql";

const subgraph = (name, url) => ({ name, url, typeDefs: parse(readFileSync(`${name}.graphql`, "utf8")) });

const { supergraphSdl, errors } = composeServices([
  subgraph("products", "http://127.0.0.1:4001/"),
  subgraph("stock", "http://127.0.0.1:4002/"),
  subgraph("events", ""), // no server
]);
if (errors) throw new Error(errors.map((error) => error.message).join("\n"));
writeFileSync("supergraph.graphql", `${supergraphSdl.trim()}\n`);
