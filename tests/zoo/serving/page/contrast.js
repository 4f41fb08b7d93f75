() => {
  // The contrast, by WCAG 2.2, of the least readable text that is seen, and of the faintest edge of a field.
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = (color) => {
    const [red, green, blue] = color.map((value) => linear(value / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ratio = (one, other) => {
    const [more, less] = [light(one), light(other)].sort((a, b) => b - a);
    return (more + 0.05) / (less + 0.05);
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = rgba(getComputedStyle(each).backgroundColor);
      if (color[3] === 255) return color;
      if (color[3]) throw new Error("A background is half transparent.");
    }
    throw new Error("There is no background.");
  };
  const seen = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 1;
  const hasText = (element) =>
    element.value || [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const texts = [...document.querySelectorAll("body *")].filter((element) => seen(element) && hasText(element));
  const fields = [...document.querySelectorAll("textarea, input:not([type=radio]), select, button.send")].filter(seen);
  const least = (elements, property, around) =>
    elements
      .map((element) => {
        const color = rgba(getComputedStyle(element)[property]);
        return [ratio(color, around(element)), element.className || element.tagName, element.textContent.slice(0, 20)];
      })
      .sort((one, other) => one[0] - other[0])[0];
  return {
    count: texts.length,
    text: least(texts, "color", behind),
    edge: least(fields, "borderTopColor", (field) => behind(field.parentElement)),
  };
}
