import { Message } from "@langchain/langgraph-sdk";

type Citation = {
  type: string;
  title?: string;
  url?: string;
  cited_text?: string;
  start_index?: number;
  end_index?: number;
};
type Block = { text?: string; annotations?: Citation[] };

/** The mark in the text that cites; empty for a citation of the whole text. */
function markOf(text: string, { start_index = 0, end_index = 0 }: Citation) {
  const characters = Array.from(text); // as Python counts them
  const isWhole = start_index === 0 && end_index === characters.length;
  return isWhole ? "" : characters.slice(start_index, end_index).join("");
}

/** What a message cites, each source once: title, linked if it is on the web, and the words. */
export function Sources({ content }: { content: Message["content"] }) {
  if (typeof content === "string") return null;
  const cited = (content as Block[]).flatMap(({ text = "", annotations = [] }) =>
    annotations
      .filter(({ type }) => type === "citation")
      .map((each) => ({ ...each, mark: markOf(text, each) })),
  );
  const sources = new Map(
    cited.map((each) => [[each.mark, each.url, each.title, each.cited_text].join("\n"), each]),
  );
  if (!sources.size) return null;
  return (
    <ul className="text-sm text-gray-600" aria-label="Sources">
      {[...sources].map(([key, { mark, title, url = "", cited_text }]) => (
        <li key={key}>
          {mark}{" "}
          {/^https?:\/\//i.test(url) ? (
            <a href={url} target="_blank" rel="noopener noreferrer" className="underline">
              {title}
            </a>
          ) : (
            title
          )}
          : <q>{cited_text}</q>
        </li>
      ))}
    </ul>
  );
}
