// The page `docs/cli.md` has the help of every command as the program prints it. `UPDATE_EXPECT=1` writes the page.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { promisify } from "node:util";

const PAGE = path.join(import.meta.dirname, "../../../../docs/cli.md");

const INTRODUCTION = `# Command line

<!-- Generated from the help of the program by the suite \`command_line\`: \`UPDATE_EXPECT=1\` writes the page. -->

For operators: each command and its options. \`starling COMMAND --help\` prints the same in a terminal, and archives
have a man page for each command.
`;

const run = promisify(execFile);

/** Returns the help of a command. */
async function helpOf(words) {
  return (await run(process.env.STARLING_BIN, [...words, "--help"], { argv0: "starling" })).stdout.trimEnd();
}

/** Returns the names of the commands below one. */
function commandsOf(help) {
  const section = /^Commands:\n((?: {2,}.*\n|\n)*)/m.exec(`${help}\n`)?.[1] ?? "";
  return [...section.matchAll(/^ {2}([a-z][\w-]*)/gm)].map(([, name]) => name).filter((name) => name !== "help");
}

/** Returns the sections of a command and of those below it. */
async function sectionsOf(words) {
  const help = await helpOf(words);
  const heading = `${"#".repeat(words.length + 1)} ${["starling", ...words].join(" ")}`;
  const own = `${words.length === 0 ? "## starling" : heading}\n\n\`\`\`text\n${help}\n\`\`\`\n`;
  const below = [];
  // One after the other: each is a process.
  for (const name of commandsOf(help)) below.push(...await sectionsOf([...words, name]));
  return [own, ...below];
}

describe("the page about the command line", () => {
  it("has the help of every command", async () => {
    const sections = await sectionsOf([]);
    assert.ok(sections.length > 15, `only ${sections.length} commands were found`);
    const page = [INTRODUCTION, ...sections].join("\n").replace(/[ \t]+$/gm, "");
    if (process.env.UPDATE_EXPECT === "1") await writeFile(PAGE, page);
    assert.equal(await readFile(PAGE, "utf8"), page, "run this suite with UPDATE_EXPECT=1");
  });
});
