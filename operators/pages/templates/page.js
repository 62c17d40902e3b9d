"use strict";
// The fact browser. Whatever comes from the payload becomes text nodes, never markup.
const PAGE_SIZE = 20;
const byId = (id) => document.getElementById(id);
const element = (tag, className, ...children) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
};
const percent = (share) => (share === null ? "–" : `${Math.round(100 * share)} %`);
const folded = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

async function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function mark(right) {
  if (right === null) return element("span", "mark");
  const sign = element("span", `mark ${right ? "is-right" : "is-wrong"}`, right ? "✓" : "✗");
  sign.title = right ? "right" : "wrong";
  sign.setAttribute("role", "img");
  sign.setAttribute("aria-label", sign.title);
  return sign;
}

// A prompt as the model read it, with what it thought and all its samples; all only of some facts.
function inFull(facts, [prompt, , , context, samples, right, thought]) {
  const more = element("details", "full", element("summary", "", samples ? "Full prompt and all samples" : "Full prompt"));
  more.append(element("pre", "", facts.contexts[context] + prompt));
  if (thought !== undefined) more.append(element("p", "note", "Thought before the answer:"), element("pre", "thought", thought));
  if (!samples) return more;
  const n = samples.reduce((sum, [, times]) => sum + times, 0);
  more.append(element("p", "note", `${n.toLocaleString("en")} samples${right === null ? "" : `, ${right.toLocaleString("en")} right`}:`));
  const list = element("ul", "samples");
  for (const [text, times] of samples)
    list.append(element("li", "", text.trim() || "(no answer)", " ", element("span", "note", `${times}×`)));
  more.append(list);
  return more;
}

function said(facts, name, [share, n, replies, examples]) {
  const of = n > 1 ? `, of ${n.toLocaleString("en")} prompts` : "";
  const body = element("div", "", element("h3", "", `${name}: ${percent(share)}${of}`));
  const list = element("ul");
  for (const [answer, note, right] of replies)
    list.append(element("li", "", mark(right), answer || "(no answer)", " ", element("span", "note", note)));
  body.append(list);
  if (!examples.length) return body;
  const prompts = element("ul");
  for (const example of examples) {
    const [prompt, answer, right] = example;
    const shown = element("li", "", mark(right), element("span", "prompt", prompt), " ", element("strong", "", (answer ?? "(no answer)").trim()));
    if (example.length > 3) shown.append(inFull(facts, example));
    prompts.append(shown);
  }
  body.append(element("p", "note", "Some prompts and their answers:"), prompts);
  return body;
}

function shown(facts, [relation, subjects, right, answers, kind]) {
  const shares = element("span", "shares");
  facts.asked.forEach((name, i) => answers[i] && facts.asked.length <= 4 && shares.append(element("span", "", `${name} ${percent(answers[i][0])}`)));
  if (facts.asked.length > 4) {
    const curve = element("span", "", answers.map((each) => (each ? "▁▂▃▄▅▆▇█"[Math.round(7 * (each[0] ?? 0))] : " ")).join(""));
    curve.title = "right answers, run by run";
    shares.append(curve);
  }
  const [id, label] = facts.relations[relation];
  const summary = element("summary", "", element("strong", "", subjects[0]), element("span", "note", kind ? `${label || id} · ${kind}` : label || id), shares);
  const fact = element("details", "fact", summary);
  fact.addEventListener("toggle", () => {
    if (fact.childElementCount > 1) return;
    const body = element("div", "body", element("p", "", "Right answer: ", element("strong", "", right.join(", "))));
    if (subjects.length > 1) body.append(element("p", "note", `Also called ${subjects.slice(1).join(", ")}`));
    const each = element("div", "answers");
    facts.asked.forEach((name, i) => answers[i] && each.append(said(facts, name, answers[i])));
    body.append(each);
    fact.append(body);
  });
  return fact;
}

function mean(answers) {
  const shares = answers.filter((each) => each && each[0] !== null).map((each) => each[0]);
  return shares.length ? shares.reduce((sum, share) => sum + share, 0) / shares.length : 0;
}

function start(facts) {
  const texts = facts.facts.map(([, subjects, right]) => folded([...subjects, ...right].join("\n")));
  const means = facts.facts.map((fact) => mean(fact[3]));
  facts.relations.forEach(([id, label], i) => byId("relation").append(new Option(label ? `${label} (${id})` : id, i)));
  let found = [];
  let limit = PAGE_SIZE;
  const draw = () => {
    byId("found").replaceChildren(...found.slice(0, limit).map((i) => shown(facts, facts.facts[i])));
    byId("more").hidden = found.length <= limit;
    byId("count").textContent = `${found.length.toLocaleString("en")} of ${facts.facts.length.toLocaleString("en")} facts`;
  };
  const search = () => {
    const query = folded(byId("query").value.trim());
    const relation = byId("relation").value;
    const order = byId("order").value;
    const kind = byId("kind")?.value ?? "";
    found = [...facts.facts.keys()].filter((i) => texts[i].includes(query) && (relation === "" || facts.facts[i][0] === Number(relation)) && (kind === "" || facts.facts[i][4] === kind));
    if (order) found.sort((a, b) => (order === "best" ? means[b] - means[a] : means[a] - means[b]) || a - b);
    limit = PAGE_SIZE;
    draw();
  };
  for (const id of ["query", "relation", "kind", "order"]) byId(id)?.addEventListener("input", search);
  byId("more").addEventListener("click", () => { limit += PAGE_SIZE; draw(); });
  search();
}

unpacked(byId("payload").textContent).then(start);
