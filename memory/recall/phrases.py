"""The words by which people show what a question is about, in English and in Chinese."""

from __future__ import annotations

import re

from memory.words import query_terms

_IGNORE = re.IGNORECASE
GREETING = re.compile(
    r"^(hi|hello|hey|yo|good (morning|afternoon|evening|night)|thanks?|thank you|thx|cheers|"
    r"ok(ay)?|yes|yep|no|nope|sure|great|"
    r"nice|cool|bye|goodbye|see you|well done|perfect|got it|lol|你好|您好|嗨|谢谢|多谢|好的?|嗯+|"
    r"是的?|不是?|再见|晚安|早上好|收到|明白了?)"
    r"( (there|you|so much|very much|a lot|again|everyone|all|man|then|啊|呀|了))*[\s!.,~。！，…:)]*$",
    _IGNORE,
)
ARITHMETIC = re.compile(
    r"^(what('s| is)|how much is|calculate|compute|solve|计算|算一下|"
    r"请算)?\s*[-+(]*\d[\d\s.,()]*([-+*/×÷^%x]|plus|minus|times|divided by)"
    r"[\d\s.,()+*/×÷^%x-]*\d[\s)]*(=|等于)?\s*(几|多少)?[?？\s.]*$",
    _IGNORE,
)
NUMBER = re.compile(
    r"\d|\b(half|third|quarter|two|three|four|five|six|seven|eight|nine|ten|twelve)\b|[二三四五六七八九十百千]", _IGNORE
)
ARITHMETIC_TERMS = frozenset(
    query_terms(
        """whats many much half third quarter two three four five six seven eight nine ten twelve dozen hundred
        thousand million plus minus times divided multiply multiplied add added subtract sum product root
        square squared cube cubed sqrt log log2 log10 ln sin cos tan prime factorial average mean median
        percent percentage decimal fraction binary hex remainder power equal equals calculate compute solve
        convert kilometres kilometers km miles mile metres meters m cm mm feet foot ft inch inches yards kg
        kilos grams g pounds lbs ounces oz litres liters ml gallons cups celsius fahrenheit kelvin seconds
        minutes hours days weeks months years degrees radians roughly exactly tip""",
        limit=200,
    )
)
CHINESE_ARITHMETIC = re.compile(
    r"[零一二三四五六七八九十百千万亿两半]|请|计算|算|一下|等于|是|多少|几|加上?|减去?|乘以?|除以|的|平方|立方|次方|根号?|平均数?|和|换算?成?|"
    r"百分之|公里|英里|厘米|米|公斤|斤|克|摄氏度|华氏度|分钟|小时|天|约"
)
"""What Chinese sums are made of."""
JUST_NOW = re.compile(
    r"\b(what|that|the (answer|text|code|list|reply|table)) you (have )?(just|last) (wrote|said|gave|made)\b|"
    r"\b(your|the) (last|previous|above) (answer|reply|message|response|sentence|paragraph|point|text|list)\b",
    _IGNORE,
)
"""What stands right above."""
_IT = r"(it|that|this|them|these|those|the|your|my|a|an|last|above|previous|each|every)"
REWRITING = re.compile(
    r"^(please |pls |can (you|u) |could (you|u) |now |ok(ay)? |and |then |请|帮我|再|把)*("
    r"translate|tranlsate|rewrite|rephrase|paraphrase|reword|proofread|shorten|simplify|expand|continue|go on|"
    rf"keep going|summari[sz]e|(turn|put|convert|change|write|say|repeat|format|explain|fix|correct|remove|add|make|"
    rf"give me) {_IT}|(fix|correct|check) (the|my|this) |try again|again|as (a |an )?(list|table|poem|bullet)|"
    r"in (english|german|french|spanish|chinese|past tense|capitals|simpler|other words)|without the |"
    r"more (formal|detail|casual)|(much )?(shorter|longer|simpler|more|less)( \w+)?( please| pls)?$|eli5|"
    r"翻译|改写|改成|重写|润色|继续|接着|再说一遍|缩短|换个说法|短一点|长一点|简单|语气|用(英语|英文|中文|日语|表格|列表)|"
    r"上面|(这|那)(句|段|篇)话?)",
    _IGNORE,
)
OWN = re.compile(
    r"\b(my|mine|our|ours|mum|mom|mums|moms|dad|dads|grandma|grandpa|myself)\b"
    r"|(?<!how )(?<!what should )\b(did|do|does|have|had|am|was|were|are|will) (i|we)\b|\b(i|we)('ve| have| had) "
    r"|(?<!告诉)(?<!帮)(?<!给)(?<!教)我|咱",
    _IGNORE,
)
SUMMARISING = re.compile(
    r"\b(summari[sz]e|summary|sum (it|this|that) up|tl;?dr|overview|outline|what('s| is| does)? "
    r"(it|this|that)( (about|say))?\b|describe|"
    r"explain (it|this|that)|main (points?|ideas?)|key (points?|ideas?))|总结|概括|摘要|讲了什么|"
    r"说了什么|是什么内容|介绍一下",
    _IGNORE,
)
FILE_WORDS = re.compile(
    r"\b(files?|documents?|docs?|pdfs?|attachments?|attached|uploaded|screenshots?|pictures?|"
    r"images?|photos?|scans?|scanned|paper|slides?|"
    r"pages?|paragraphs?|chapters?|sections?|spreadsheets?|dropped)\b|文件|文档|附件|截图|图片|"
    r"照片|扫描|第\s*[\d一二三四五六七八九十]+\s*[页章节段]|上传|论文",
    _IGNORE,
)
MEMORY_WORDS = re.compile(
    r"\b(earlier|previously|last (time|week|month|year|night|chat|conversation|session|monday|"
    r"tuesday|wednesday|thursday|friday|"
    r"saturday|sunday)|yesterday|the other day|remember|recall|remind me|forgot(ten)?|"
    r"you (just )?(said|told|mentioned|suggested|recommended|wrote|gave|promised)|"
    r"i (just |already )?(said|told|mentioned|asked|gave|showed|wrote) |we (just |already )?(said|"
    r"talked|discussed|spoke|decided|agreed|chose|planned)|"
    r"(did|have|had) (you|i|we) (ever |already )?(say|said|tell|told|mention|mentioned|talk|"
    r"talked|discuss|discussed|decide|decided|agree|agreed|ask|asked)|"
    r"(a few|some|\d+|two|three|four|five|six) (days?|weeks?|months?|hours?|years?) ago|(our|the|"
    r"my) (last|previous|first|other) (chat|conversation|question|message)|"
    r"(start|beginning) of (this|the|our) (chat|conversation))\b|as i said|"
    r"之前|上次|上回|以前|刚才|先前|早些时候|昨天|前天|上周|上个?月|上星期|去年|说过|提到|提过|告诉过|聊过|讨论过|问过|记得|回忆|我们(说|聊|讨论|决定)",
    _IGNORE,
)
THIS_CHAT = re.compile(
    r"\b(this (chat|conversation)|above|earlier|(start|beginning) of (this|the|our) (chat|"
    r"conversation)|you just|i just)\b|刚才|前面|上面|本次|这次",
    _IGNORE,
)
TELLING = re.compile(
    r"^(please |ok(ay)?,? |so,? |also,? |by the way,? |fyi,? |note:? )*(remember (that|this|:|my|"
    r"i)\b|keep in mind|note that|for the record|"
    r"(i|my|we|our|im|ive) |i'm |i've |we're |we've )|^(请?记住|我的?|我们)",
    _IGNORE,
)
OWN_THING = re.compile(
    r"^(my|our)( (?!(is|are|was|were|has|have|had|isn't|got|can|will|does|did|just|keeps?|feels?|looks?|needs?|wants?)"
    r"\b)[a-z][a-z'’-]*){1,5}$|^(我|我们)的[^，。？是有叫在了很太好又]{1,8}$",
    _IGNORE,
)
"""A thing of the person's, and nothing that is surely said of it."""
ASKING = re.compile(
    r"[?？]|\b(what|when|where|which|wich|who|whom|whose|why|how)('?s|re|d)?\b|"
    r"^(is|are|was|were|am|do|does|did|can|could|should|will|would|has|have|had)\b|"
    r"\b(tell me|give me|show me|find|list|help|explain|write|need|want|can you|could you|"
    r"do you|wonder)\b|什么|哪|谁|几|多少|怎么|为什么|如何|吗|呢|告诉我|帮|请问|想",
    _IGNORE,
)
OWN_FACT = re.compile(
    r"\b(what|when|where|which|who|whose|how (many|much|old|long|far|often|big|tall)|do you know|"
    r"tell me|is|are|was|were)\b[^.?!]*\b(my|mine|our)\b|"
    r"\b(did|am|was|were|have|had|do) (i|we)\b(?! need)|我的?[^，。？]{0,12}(什么|哪|谁|几|多少|"
    r"吗)|(什么|哪|谁|几)[^，。？]{0,8}我",
    _IGNORE,
)
DEFINITE_FILE = re.compile(
    r"\b(the|this|that|these|those|my|your|our|all|any)( [\w-]+)? (files?|documents?|docs?|pdfs?|attachments?|"
    r"screenshots?|pictures?|images?|photos?|scans?|papers?|slides?|spreadsheets?)\b|(这|那|我|个|份|张|篇)[^，。]{0,3}"
    r"(文件|文档|附件|截图|图片|照片|论文)",
    _IGNORE,
)
PAGE = re.compile(r"\bpages? (?:no\.? ?)?(\d{1,4})\b|\bp\. ?(\d{1,4})\b|第\s*(\d{1,4})\s*页", _IGNORE)
FILE_NAME = re.compile(
    r"[\w-]+(?:[ .][\w-]+)*?\.(?:pdf|png|jpe?g|tiff?|md|txt|py|js|ts|c|cpp|h|rs|go|java|json|csv|"
    r"html?|log|ya?ml|toml)\b",
    _IGNORE,
)
GENERIC_TERMS = frozenset(
    query_terms(
        """file document pdf attachment attached image picture screenshot photo scan page text paper
        content contain contents say says summary summarise summarize summarized overview outline describe
        description explain tell show read look see give main point points key idea ideas topic subject
        short brief briefly sentence sentences paragraph words detail details thing things please inside
        happen written write find information info uploaded dropped sent gave one two three everything""",
        limit=200,
    )
)
GENERIC_CHINESE = re.compile(
    r"总结|概括|摘要|介绍|说明|描述|解释|内容|文件|文档|附件|图片|截图|照片|主要|一下|什么|请|帮我|给我|看看|关于|讲|说|写|的|了|是|里|有|吗|呢|这|那|个|份|张|它|都"
)
HAPPENING = frozenset(
    query_terms(
        """happen happened happening going went go plan plans planned schedule scheduled calendar busy free up doing
        done there anything something everything know remember day days events passiert geplant los""",
        limit=100,
    )
)
HAPPENING_CHINESE = re.compile(r"发生|安排|计划|事情|事|情况|做|过")
"""How one asks what was or will be in some days, whatever it is."""
