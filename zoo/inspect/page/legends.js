// What the marks of a view mean, in words.

const ATTENDS = {
  lines: "A line leads from a token on the left, which attends, to a token on the right, which is attended to. The stronger its color, " +
    "the larger the weight, compared with the largest weight drawn; below 2 % of that there is no line. Of more than 1,000 lines, the strongest of each token are drawn. Point at a token to see its lines alone. Click a token on the left, or " +
    "use the arrow keys, to select it: it is bold and framed. Esc shows all lines.",
  heads: "One small picture for each head: rows attend, columns are attended to. The stronger the color of a cell, the larger the weight, " +
    "compared with the largest weight of that head. Click a picture, or use the arrow keys, to select a head: it is framed, and large below.",
  matrix: "Each row is a token that attends, each column a token that is attended to. The stronger the color of a cell, the larger the " +
    "weight. Point at a cell for its number.",
};
const HIT = "A choice in bold is the target.";
const OF_VALUES = "The values that the model predicts.";
const SIGNS = [[/ /, "␣ is a space"], [/\n/, "⏎ a line break"], [/^$/, "∅ a token without text"]];

/** Returns what the marks of a view of attention mean; steps of a decoder are named otherwise. */
export function legendOfAttention(view, isOfSteps) {
  return isOfSteps ? `${ATTENDS[view]} A token that attends stands for the step at which the decoder has to write it.` : ATTENDS[view];
}

/** Returns what the marks in the table of predictions mean. */
export function legendOfPredictions({ areValues, targets }) {
  if (areValues) return OF_VALUES;
  const choices = "Each choice stands with its probability, which is also the length of the bar above it.";
  return isKnown(targets) ? `${choices} The target is the right choice. ${HIT}` : choices;
}

/** Returns what the marks in a table of layers mean: of the top choice, of the target, or of norms. */
export function legendOfLayers(reading, { areValues, targets } = {}) {
  if (reading.startsWith("norms-")) {
    return "The Euclidean norm of the hidden state of each token after each layer. The longest bar is the largest norm.";
  }
  const lens = "Each column reads the hidden states of one layer as if it were the last one.";
  if (areValues) return `${lens} ${OF_VALUES}`;
  if (reading === "target") return `${lens} The number, and the bar, is the probability of the target.`;
  const hit = isKnown(targets) ? `${HIT} ` : "";
  return `${lens} It shows the top choice; the bar is its probability. ${hit}Point at a choice for the next ones.`;
}

function isKnown(targets) {
  return targets.some((target) => target !== null);
}

/** Returns what the marks of gradients mean. */
export function legendOfGradients({ areValues }) {
  return `How much the ${areValues ? "value" : "log-probability of the prediction"} grows with the embedding of each token. The stronger the stroke ` +
    "under a token, the larger the number. A double stroke in red means that it falls.";
}

/** Returns what the signs mean that stand for characters without a picture, as far as tokens have such; "" if none has. */
export function legendOfSigns(tokens) {
  const used = SIGNS.filter(([pattern]) => tokens.some((token) => pattern.test(token))).map(([, sign]) => sign);
  return used.length ? `${used.join(", ")}.` : "";
}
