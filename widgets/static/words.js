// What Tab completes at a prompt. Pure.

// The dotted word that ends at a place of a line: `p mod.li` has `mod.li` at its end.
export function wordBefore(line, end) {
  return /[\p{L}\p{N}_.]*$/u.exec(line.slice(0, end))[0];
}

// What all words begin with.
export function shared(words) {
  let text = words[0] ?? "";
  for (const word of words) while (!word.startsWith(text)) text = text.slice(0, -1);
  return text;
}
