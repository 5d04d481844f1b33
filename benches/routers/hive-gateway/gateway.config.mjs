// What the comparison needs: `authorization` reaches the subgraphs, nothing is logged per request.
export const gatewayConfig = {
  logging: "warn",
  propagateHeaders: {
    fromClientToSubgraphs({ request }) {
      const authorization = request.headers.get("authorization");
      return authorization ? { authorization } : {};
    },
  },
};
