// The JSON of the console, and its tables in a browser.

/** Reads the JSON of a router's console: `{status, headers, text, body}`, where `body` is null unless it is JSON. */
export async function readConsole(router, name, parameters = {}, options = {}) {
  const query = new URLSearchParams(parameters).toString();
  const response = await fetch(`${router.admin}/console/api/${name}?${query}`, options);
  const text = await response.text();
  const isJson = response.headers.get("content-type") === "application/json";
  return { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : null };
}

/** Waits until the page has shown its data. */
export const updated = (page) => page.locator("main[data-updated]").waitFor();

/** The first row with a text in the table with that caption. */
export const rowOf = (page, caption, text) =>
  page.locator("table").filter({ hasText: caption }).locator("tbody tr").filter({ hasText: text }).first();

/** The texts of the cells of a row, as soon as it is there. */
export async function cells(row) {
  await row.waitFor();
  return row.locator("th, td").allTextContents();
}
