// Takes the pictures of docs/images again, with a headless Chromium and playwright-core (`npm install playwright-core`):
//   python -m dagster_project && DAGSTER_HOME=$PWD/dagster_project/home dg dev -m dagster_project.definitions
//   node .ci/pages.mjs http://127.0.0.1:3000 lineage published
// and, over a home in which a leak was planted, `node .ci/pages.mjs URL gates`.
import { chromium } from "playwright-core";

const [base, ...names] = process.argv.slice(2);
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const PAGES = {
  lineage: { path: "/asset-groups", width: 1560, height: 420, wide: true },
  published: { path: "/assets/published_notes", width: 1360, height: 780 },
  gates: { path: "/assets/staged_notes?view=checks&checkDetail=canary_text_absent", width: 1360, height: 780 },
};

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
for (const name of names) {
  const { path, width, height, wide } = PAGES[name];
  const page = await browser.newPage({ viewport: { width, height } });
  await page.goto(base + path);
  await page.waitForTimeout(6000);
  if (wide) {
    await page.getByText("Hide navigation").click();
    await page.reload();
    await page.waitForTimeout(8000);
  }
  await page.screenshot({ path: `docs/images/dagster-${name}.png` });
}
await browser.close();
