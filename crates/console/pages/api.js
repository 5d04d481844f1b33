// Reads the JSON below `api/`, with the token if the router wants one.

const KEY = "starling-console-token";

/** The router wants a token, or another one. */
export class TokenNeeded extends Error {}

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

/** Returns the response to a request, or throws an error with a message for people. */
async function send(path, options = {}) {
  const token = sessionStorage.getItem(KEY);
  const headers = { accept: "application/json", ...options.headers };
  if (token !== null) headers.authorization = `Bearer ${token}`;
  // A fetch that gets no response has a message of the browser, which does not say what is wrong.
  const response = await fetch(`api/${path}`, { ...options, headers }).catch(() => {
    throw new Error("The router does not respond.");
  });
  if (response.status === 401) throw new TokenNeeded("The token is missing or wrong.");
  if (!response.ok) throw new Error((await response.text()).trim());
  return response;
}

/** Reads JSON. `parameters` are those of the URL. */
export async function read(name, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return (await send(query === "" ? name : `${name}?${query}`)).json();
}

/** Sends a body, and returns the text of the response. */
export async function post(name, parameters, body, contentType = "application/json") {
  const query = new URLSearchParams(parameters).toString();
  const path = query === "" ? name : `${name}?${query}`;
  const response = await send(path, { method: "POST", body, headers: { "content-type": contentType } });
  return (await response.text()).trim();
}
