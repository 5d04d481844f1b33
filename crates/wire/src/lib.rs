//! Protocol machines without sockets: WebSocket, graphql-transport-ws, SSE.
